"use strict";
// Everything on the page works from what is in it: figures are drawn when they come near the view, tables sort and
// leave as CSV, the theme follows the system until it is chosen.

const root = document.documentElement;
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const looks = JSON.parse(document.getElementById("looks").textContent); // a template for each theme, and the palette

// ---- theme -----------------------------------------------------------------------------------------------------

const themeButton = document.getElementById("theme");

function currentTheme() {
  return root.dataset.theme || (systemDark.matches ? "dark" : "light");
}

function showTheme() {
  const theme = currentTheme();
  themeButton.textContent = theme === "dark" ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", theme === "dark" ? "Switch to light colours" : "Switch to dark colours");
  document.querySelectorAll(".js-plotly-plot").forEach(drawAnew);
}

function remembered(theme) {
  try { // a page opened from disk may be denied storage
    if (theme) localStorage.setItem("interp-theme", theme);
    return localStorage.getItem("interp-theme");
  } catch (error) {
    return null;
  }
}

themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  root.dataset.theme = currentTheme() === "dark" ? "light" : "dark";
  remembered(root.dataset.theme);
  showTheme();
});
systemDark.addEventListener("change", showTheme);
if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();

// ---- the index: records that hold every word ---------------------------------------------------------------------

const filter = document.getElementById("filter");
if (filter) {
  const rows = [...document.querySelectorAll("table.index tbody tr")];
  filter.hidden = false;
  filter.querySelector("input").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    rows.forEach((row) => { row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word)); });
    filter.querySelector("[role=status]").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  });
}

// ---- the index: answers of chosen records side by side ------------------------------------------------------------

const beside = document.getElementById("beside");
if (beside) {
  const boxes = [...document.querySelectorAll("table.index input[type=checkbox]")];
  const cells = (tag, texts) => texts.map((text) => Object.assign(document.createElement(tag), { textContent: text }));
  boxes.forEach((box) => {
    box.hidden = false;
    box.addEventListener("input", () => {
      const rows = boxes.filter((each) => each.checked).map((each) => each.closest("tr"));
      const said = rows.map((row) => new Map([...row.querySelectorAll("li")].map((item) => (
        [item.querySelector(".asks").textContent, item.querySelector(".says").textContent]))));
      const table = beside.querySelector("table");
      table.replaceChildren();
      table.createTHead().insertRow().append(...cells("th", ["question", ...rows.map((row) => row.dataset.name)]));
      const body = table.createTBody();
      for (const asked of new Set(said.flatMap((each) => [...each.keys()]))) {
        const [question] = cells("th", [asked]);
        question.scope = "row";
        body.insertRow().append(question, ...cells("td", said.map((each) => each.get(asked) ?? "–")));
      }
      beside.querySelector("code").textContent = `interp compare ${rows.map((row) => row.dataset.run).join(" ")}`;
      beside.querySelector(".code").hidden = rows.length < 2;
      beside.hidden = rows.length === 0;
    });
  });
}

// ---- figures ---------------------------------------------------------------------------------------------------

const DEFAULT_HEIGHT = 380;
const NARROW = 520;
const COLOUR_BAR_BELOW = { orientation: "h", x: 0.5, xanchor: "center", yref: "container", y: 0, yanchor: "bottom", title: { side: "bottom" } };
const CALLS = ["animate", "relayout", "restyle", "update"];

const contents = new Map(); // what has been drawn, by its element

function isNarrow(plot) {
  return plot.clientWidth < NARROW;
}

// A colour bar at the side leaves too little of a narrow screen, so it goes below.
function templateFor(plot) {
  const template = structuredClone(looks[currentTheme()]);
  if (isNarrow(plot)) {
    const bars = Object.values(template.data).map(([trace]) => trace.colorbar || trace.marker.colorbar);
    [...bars, template.layout.coloraxis.colorbar].forEach((bar) => Object.assign(bar, COLOUR_BAR_BELOW));
  }
  return template;
}

// Figures name the colours of a palette; the theme shows its own colour of the same place, faded where that was.
function themed(value, key = "") {
  if (typeof value === "string") return key.endsWith("color") ? ownColour(value) : value;
  if (Array.isArray(value)) return value.map((part) => themed(part, key));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, themed(part, name)]));
}

function ownColour(colour) {
  const parts = (hex) => hex.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16)).join(",");
  const at = looks.palette.findIndex((named) => colour.toUpperCase() === named || colour.startsWith(`rgba(${parts(named)},`));
  if (at < 0) return colour;
  const own = looks[currentTheme()].layout.colorway[at];
  return colour.startsWith("#") ? own : colour.replace(parts(looks.palette[at]), parts(own));
}

function draw(plot) {
  if (contents.has(plot)) return;
  const source = plot.querySelector("script");
  contents.set(plot, JSON.parse(source.textContent));
  source.remove();
  place(plot);
  contents.get(plot).controls.forEach((control) => plot.parentElement.after(controlFor(plot, control)));
}

const LEGEND_ROW = 19;

// On a narrow screen the legend has a row for every name or two: the plot keeps its height below it.
function legendHeight(plot, data) {
  if (!isNarrow(plot)) return 0;
  const shown = data.filter((trace) => trace.name && trace.showlegend !== false && trace.visible !== false);
  return LEGEND_ROW * Math.max(0, new Set(shown.map((trace) => trace.name)).size - 2);
}

function wrapped(text, length) {
  const lines = [""];
  for (const word of text.trim().split(/\s+/)) {
    if (lines.at(-1) && (lines.at(-1) + word).length >= length) lines.push("");
    lines.push(`${lines.pop()} ${word}`.trim());
  }
  return lines;
}

const TITLE_LINE = 32; // characters of an axis title below a narrow plot

// Plotly does not break the titles of axes.
function breakTitles(plot, layout) {
  if (!isNarrow(plot)) return;
  for (const [name, axis] of Object.entries(layout)) {
    if (!/^xaxis\d*$/.test(name) || !axis.title?.text) continue;
    axis.title.text = wrapped(axis.title.text.replaceAll("<br>", " "), TITLE_LINE).join("<br>");
  }
}

function place(plot) {
  const { data, layout, frames } = themed(contents.get(plot));
  const config = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // plotly's default button would send the data away
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["toImage", "lasso2d", "select2d", "autoScale2d"],
  };
  const above = legendHeight(plot, data);
  const height = (layout.height || DEFAULT_HEIGHT) + above;
  const framed = { ...layout, autosize: true, width: undefined, height, template: templateFor(plot) };
  breakTitles(plot, framed);
  if (layout.margin) framed.margin = { ...layout.margin, t: layout.margin.t + above };
  if (matchMedia("(pointer: coarse)").matches) framed.dragmode = false; // a finger scrolls the page
  plot.dataset.narrow = isNarrow(plot);
  Plotly.newPlot(plot, { data, layout: framed, frames, config });
}

// Plotly mends its sizes by itself, but not the place of a colour bar: draw anew where that changes.
function fit(plot) {
  if (String(isNarrow(plot)) !== plot.dataset.narrow) drawAnew(plot);
}

function drawAnew(plot) {
  Plotly.purge(plot);
  place(plot);
  plot.closest("figure").querySelectorAll(".control input, .control select").forEach((input) => input.dispatchEvent(new Event("input")));
}

// Which traces are shown comes as "1011".
function spelledOut({ method, args }) {
  const visible = args[0]?.visible;
  if (typeof visible !== "string" || !/^[01]+$/.test(visible)) return { method, args };
  return { method, args: [{ ...args[0], visible: [...visible].map((bit) => bit === "1") }, ...args.slice(1)] };
}

// Plotly's own sliders and menus cannot be reached with the keyboard; these can.
function controlFor(plot, { kind, label, active, steps }) {
  const box = document.createElement("label");
  box.className = "control";
  const words = document.createElement("span");
  const input = document.createElement(kind === "slider" ? "input" : "select");
  if (kind === "slider") {
    Object.assign(input, { type: "range", min: 0, max: steps.length - 1, step: 1 });
  } else {
    input.append(...steps.map((step, i) => new Option(step.label, i)));
  }
  input.value = active;
  input.setAttribute("aria-label", label || plot.getAttribute("aria-label"));
  const say = () => {
    const shown = steps[input.value].label;
    words.textContent = kind === "slider" ? `${label} ${shown}`.trim() : label;
    if (kind === "slider") input.setAttribute("aria-valuetext", shown);
  };
  input.addEventListener("input", () => {
    const { method, args } = spelledOut(steps[input.value]);
    say();
    // An animation that is overtaken by the next one rejects its promise: nothing is lost.
    if (CALLS.includes(method)) Plotly[method](plot, ...themed(args)).catch(() => {});
  });
  say();
  box.append(words, input);
  return box;
}

const plots = [...document.querySelectorAll(".plot")];
const nearView = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
    nearView.unobserve(target);
    draw(target);
  }),
  { rootMargin: "600px 0px" },
);
plots.forEach((plot) => nearView.observe(plot));
addEventListener("resize", () => document.querySelectorAll(".js-plotly-plot").forEach(fit));

// Paper is white and of another width, and all figures are on it.
const folded = () => document.querySelectorAll("details.more:not([open])");
addEventListener("beforeprint", () => {
  folded().forEach((details) => Object.assign(details, { open: true }).classList.add("unfolded"));
  plots.forEach(draw);
  root.dataset.printed = root.dataset.theme || "";
  root.dataset.theme = "light";
  showTheme();
  plots.forEach((plot) => Plotly.relayout(plot, { width: 660, height: 0.72 * plot.layout.height, autosize: false }));
});
addEventListener("afterprint", () => {
  root.dataset.theme = root.dataset.printed;
  if (!root.dataset.theme) delete root.dataset.theme;
  showTheme(); // draws all anew, at their size on the screen
  document.querySelectorAll("details.unfolded").forEach((details) => (details.open = false));
});

// ---- figures and tables as files --------------------------------------------------------------------------------

function save(text, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function svgElement(name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.textContent = text;
  return element;
}

// A figure as it is seen, under its title and above its caption.
async function svgOf(figure) {
  const plot = figure.querySelector(".plot");
  const { width, height } = plot._fullLayout;
  const drawn = await Plotly.toImage(plot, { format: "svg", width, height, imageDataOnly: true });
  const inner = new DOMParser().parseFromString(drawn, "image/svg+xml").documentElement;
  const { color, backgroundColor, fontFamily } = getComputedStyle(document.body);
  const title = figure.querySelector(".title").textContent;
  const caption = wrapped(figure.querySelector(".reading").textContent, width / 6.5);
  const [above, line] = [32, 18];
  const whole = above + height + (caption.length + 1) * line;
  inner.setAttribute("y", above);
  const page = svgElement("svg", { width, height: whole, viewBox: `0 0 ${width} ${whole}`, fill: color, "font-family": fontFamily });
  page.append(
    svgElement("title", {}, title),
    svgElement("rect", { width, height: whole, fill: backgroundColor }),
    svgElement("text", { x: 8, y: 22, "font-size": 15, "font-weight": 600 }, title),
    inner,
    ...caption.map((text, i) => svgElement("text", { x: 8, y: above + height + (i + 1) * line, "font-size": 13 }, text)),
  );
  return new XMLSerializer().serializeToString(page);
}

// What a figure without a table of its own draws.
function drawnTable(plot) {
  const rows = plot._fullData.filter((trace) => trace.visible === true).flatMap(({ name, x, y, z }) => {
    if (z) return [...z].flatMap((row, i) => [...row].map((value, j) => [name, x?.[j] ?? j, y?.[i] ?? i, value]));
    return Array.from({ length: Math.max(x?.length ?? 0, y?.length ?? 0) }, (_, i) => [name, x?.[i], y?.[i], null]);
  });
  const names = ["trace", "x", "y", "z"];
  return { names, values: names.map((_, i) => rows.map((row) => row[i] ?? null)) };
}

function csv({ names, values }) {
  const field = (v) => (v === null ? "" : /[",\r\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : String(v));
  const rows = (values[0] || []).map((_, i) => values.map((column) => field(column[i])).join(","));
  return [names.map(field).join(","), ...rows, ""].join("\r\n");
}

const unpacked = new Map(); // tables that were asked for, by their element

// All columns of a table: they lie gzipped in the page.
function tableOf(listing) {
  if (!unpacked.has(listing)) {
    const bytes = Uint8Array.from(atob(listing.querySelector("script").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(listing, new Response(stream).json());
  }
  return unpacked.get(listing);
}

const saveTable = async (listing) => save(csv(await tableOf(listing)), `${listing.querySelector("table").dataset.name}.csv`, "text/csv");

for (const figure of document.querySelectorAll("figure:has(.plot)")) {
  const tools = figure.querySelector("figcaption .tools");
  const plot = figure.querySelector(".plot");
  tools.hidden = false;
  tools.querySelector("[data-do=svg]").addEventListener("click", async () => {
    draw(plot);
    save(await svgOf(figure), `${figure.id}.svg`, "image/svg+xml");
  });
  tools.querySelector("[data-do=csv]").addEventListener("click", ({ currentTarget }) => {
    const listing = document.getElementById(currentTarget.dataset.table);
    if (listing?.querySelector("script")) return saveTable(listing);
    draw(plot);
    return save(csv(drawnTable(plot)), `${figure.id}.csv`, "text/csv");
  });
}

// ---- tables ----------------------------------------------------------------------------------------------------

// The same rule as interp/formatting.py: three digits, no trailing zeros, powers of ten beyond 0.0001 and a million.
function cellText(value) {
  if (value === null) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return value;
  const size = Math.abs(value);
  const trimmed = (text) => (text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text);
  let text = "0";
  if (size !== 0 && (size < 1e-4 || (size >= 1e6 && !Number.isInteger(value)))) {
    const [mantissa, power] = size.toExponential(2).split("e");
    text = `${trimmed(mantissa)}e${power.replace("+", "").replace("-", "−")}`;
  } else if (Number.isInteger(value)) {
    text = String(size);
  } else {
    text = trimmed(size.toFixed(Math.max(0, 2 - Math.floor(Math.log10(size)))));
  }
  return value < 0 ? `−${text}` : text;
}

function compared(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b;
}

// The clipboard of a page opened from disk may be closed; a selected text field still copies.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied.";
  } catch (error) {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "offscreen";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done ? "Copied." : "The browser did not allow copying.";
  }
}

function enliven(listing) {
  const table = listing.querySelector("table");
  const heads = [...table.tHead.rows[0].cells];

  async function sort(by) {
    const ascending = heads[by].getAttribute("aria-sort") !== "ascending";
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== by ? "none" : ascending ? "ascending" : "descending"));
    const { values } = await tableOf(listing);
    const column = values[by];
    const order = column.map((_, i) => i).sort((i, j) => {
      const missing = (column[i] === null) - (column[j] === null);
      return missing || (ascending ? 1 : -1) * compared(column[i], column[j]);
    });
    const rows = order.slice(0, Number(table.dataset.shown)).map((i) => {
      const row = document.createElement("tr");
      values.forEach((column, c) => {
        const cell = row.insertCell();
        if (heads[c].className !== "num") cell.className = heads[c].className; // numbers are the rule
        cell.textContent = cellText(column[i]);
      });
      return row;
    });
    table.tBodies[0].replaceChildren(...rows);
  }

  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => sort(i)));
  const tools = listing.querySelector(".tools");
  tools.hidden = false;
  tools.querySelector("[data-do=copy]").addEventListener("click", async () => {
    tools.querySelector(".said").textContent = await copy(csv(await tableOf(listing)));
  });
  tools.querySelector("[data-do=csv]").addEventListener("click", () => saveTable(listing));
}

document.querySelectorAll(".listing:has(script)").forEach(enliven);
for (const button of document.querySelectorAll(".code .copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    button.textContent = await copy(button.parentElement.querySelector("code").textContent);
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// A link opens what it leads to, and what that lies in.
function reveal(hash) {
  const target = document.getElementById(decodeURIComponent(hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  return target;
}

document.querySelectorAll("a[href^='#']").forEach((link) => link.addEventListener("click", () => reveal(link.hash)));
if (location.hash) reveal(location.hash)?.scrollIntoView();
showTheme();
