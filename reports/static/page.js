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

// ---- figures ---------------------------------------------------------------------------------------------------

const DEFAULT_HEIGHT = 420;
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

const TITLE_LINE = 32; // characters of an axis title below a narrow plot

// Plotly does not break the titles of axes.
function breakTitles(plot, layout) {
  if (!isNarrow(plot)) return;
  for (const [name, axis] of Object.entries(layout)) {
    if (!/^xaxis\d*$/.test(name) || !axis.title?.text) continue;
    const lines = [""];
    for (const word of axis.title.text.replaceAll("<br>", " ").split(" ")) {
      if (lines.at(-1) && (lines.at(-1) + word).length >= TITLE_LINE) lines.push("");
      lines.push(`${lines.pop()} ${word}`.trim());
    }
    axis.title.text = lines.join("<br>");
  }
}

function place(plot) {
  const { data, layout, frames } = themed(contents.get(plot));
  const config = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // plotly's default button would send the data away
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
    toImageButtonOptions: { format: "svg", filename: plot.closest("figure").id },
  };
  const framed = { ...layout, autosize: true, width: undefined, height: (layout.height || DEFAULT_HEIGHT) + legendHeight(plot, data), template: templateFor(plot) };
  breakTitles(plot, framed);
  if (layout.margin) framed.margin = { ...layout.margin, t: layout.margin.t + legendHeight(plot, data) };
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
    input.setAttribute("aria-valuetext", shown);
  };
  input.addEventListener("input", () => {
    const { method, args } = steps[input.value];
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

// Paper is white and of another width, and two figures fit on a sheet.
addEventListener("beforeprint", () => {
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
});

// ---- tables ----------------------------------------------------------------------------------------------------

// The same rule as reports/formatting.py: four digits, no trailing zeros, powers of ten beyond 0.0001 and a million.
function cellText(value) {
  if (value === null) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return value;
  const size = Math.abs(value);
  const trimmed = (text) => (text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text);
  let text = "0";
  if (size !== 0 && (size < 1e-4 || (size >= 1e6 && !Number.isInteger(value)))) {
    const [mantissa, power] = size.toExponential(3).split("e");
    text = `${trimmed(mantissa)}e${power.replace("+", "").replace("-", "−")}`;
  } else if (Number.isInteger(value)) {
    text = String(size);
  } else {
    text = trimmed(size.toFixed(Math.max(0, 3 - Math.floor(Math.log10(size)))));
  }
  return value < 0 ? `−${text}` : text;
}

function compared(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b;
}

function csv({ names, values }) {
  const field = (v) => (v === null ? "" : /[",\r\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : String(v));
  const rows = (values[0] || []).map((_, i) => values.map((column) => field(column[i])).join(","));
  return [names.map(field).join(","), ...rows, ""].join("\r\n");
}

function save(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
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
  let parsed = null;
  const content = () => (parsed ??= JSON.parse(listing.querySelector("script").textContent));

  function sort(by) {
    const ascending = heads[by].getAttribute("aria-sort") !== "ascending";
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== by ? "none" : ascending ? "ascending" : "descending"));
    const { values } = content();
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
  const said = tools.querySelector(".said");
  tools.hidden = false;
  tools.querySelector("[data-do=copy]").addEventListener("click", async () => {
    said.textContent = await copy(csv(content()));
  });
  tools.querySelector("[data-do=download]").addEventListener("click", () => save(csv(content()), `${table.dataset.name}.csv`));
}

document.querySelectorAll(".listing").forEach(enliven);
for (const link of document.querySelectorAll("a.opens")) {
  link.addEventListener("click", () => (document.getElementById(link.hash.slice(1)).open = true));
}
for (const button of document.querySelectorAll(".code .copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    button.textContent = await copy(button.parentElement.querySelector("code").textContent);
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}
showTheme();
