// Draws each figure when it comes into view, in the colours of the page, and again when these change.
const scheme = () => (document.body.dataset.mdColorScheme === "slate" ? "dark" : "light");
const draw = (figure) => {
  const place = figure.querySelector("div");
  const { data, layout } = JSON.parse(figure.querySelector("script").textContent)[scheme()];
  const least = layout.xaxis3 ? 620 : Math.max(340, (layout.margin.l || 0) + 280); // narrower, its parts would overlap
  Plotly.react(place, data, { ...layout, width: Math.max(place.clientWidth, least) }, { displayModeBar: false });
};
const figures = [...document.querySelectorAll(".plotly-figure")];
const seen = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
    seen.unobserve(entry.target);
    entry.target.dataset.drawn = "yes";
    draw(entry.target);
  }),
  { rootMargin: "400px" },
);
figures.forEach((figure) => seen.observe(figure));
const again = () => figures.filter((figure) => figure.dataset.drawn).forEach(draw);
new MutationObserver(again).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
addEventListener("resize", again);
