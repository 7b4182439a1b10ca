"""A page in a real browser, and what happened on it."""

from pathlib import Path


class Seen:
    """A page that was opened, with every request it made and everything that went wrong on it."""

    def __init__(self, browser, address: Path, width: int = 1400, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.troubles: list[str] = []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", lambda m: self.troubles.append(m.text) if m.type in ("error", "warning") else None)
        self.page.goto(address.as_uri())

    def draw(self) -> "Seen":
        """Open what is folded and scroll past every figure, since each is drawn when it comes near."""
        self.page.evaluate("document.querySelectorAll('details.more').forEach(d => (d.open = true))")
        for plot in self.page.locator(".plot").all():
            plot.scroll_into_view_if_needed()
            plot.locator(".main-svg").first.wait_for()
        return self

    def open_all(self) -> None:
        """Open everything that opens."""
        self.page.evaluate("document.querySelectorAll('details').forEach(d => (d.open = true))")

    def shapes(self, figure: str) -> int:
        """How many data marks a figure shows: points, bars, lines, matrices."""
        marks = ".points path, path.js-line, .heatmaplayer image"
        return self.page.locator(f"#pictures-{figure} .cartesianlayer :is({marks})").count()

    def until(self, expression: str) -> None:
        """Wait until an expression holds; the page's policy keeps the browser's own waiting from evaluating text."""
        for _ in range(100):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never came true: {expression}")

    def overflow(self) -> int:
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def crowded(self) -> list[str]:
        """Numbers that run out of their cells."""
        cells = self.page.locator(".numbers td")
        return cells.evaluate_all("c => c.filter(x => x.scrollWidth > x.clientWidth).map(x => x.textContent)")

    def too_wide(self) -> list[str]:
        """Figures of one panel that have to be scrolled sideways."""
        is_wide = "x.querySelector('.main-svg').clientWidth > x.closest('figure').clientWidth"
        plots = self.page.locator(".plot[data-columns='1']")
        return plots.evaluate_all(f"p => p.filter(x => {is_wide}).map(x => x.ariaLabel)")
