"use strict";
// Strips of tokens: coloured by what is chosen, with the attention of one token as bars under the others; below them
// the attention map of every head, to choose one from, and the map of the chosen head.
(() => {
  const bytesOf = (packed) => Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const wordsOf = (packed) => {
    const view = new DataView(bytesOf(packed).buffer);
    return Float64Array.from({ length: view.byteLength / 2 }, (_, i) => view.getUint16(2 * i, true) / 65535);
  };
  const KINDS = [
    ["entropy", "attention entropy", "bits"],
    ["sink", "sink mass", ""],
    ["next_entropy", "next-token entropy", "bits"],
    ["belief", "entropy of the exact belief", "bits"],
  ];

  function control(word, input) {
    const label = document.createElement("label");
    const value = document.createElement("span");
    label.append(`${word} `, value, input);
    label.value = value;
    return label;
  }

  function slider(word, n, changed) {
    const input = Object.assign(document.createElement("input"), { type: "range", min: 0, max: n - 1, value: 0 });
    const label = control(word, input);
    const show = () => { label.value.textContent = input.value; };
    input.addEventListener("input", () => { show(); changed(); });
    show();
    return { label, at: () => Number(input.value), set: (i) => { input.value = i; show(); } };
  }

  // A picture of weights: queries down, keys across, the stronger the larger; of one colour that carries on any paper.
  function picture(n, weightOf) {
    const canvas = Object.assign(document.createElement("canvas"), { width: n, height: n });
    const image = new ImageData(n, n);
    for (let from = 0; from < n; from += 1) {
      for (let to = 0; to < n; to += 1) {
        const alpha = to > from ? 14 : Math.round(30 + 225 * Math.sqrt(weightOf(from, to)));
        image.data.set(to > from ? [128, 128, 128, alpha] : [46, 124, 190, alpha], 4 * (from * n + to));
      }
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  function enliven(strip) {
    strip.dataset.alive = "";
    const known = JSON.parse(strip.querySelector("script").textContent);
    const n = known.tokens.length;
    const [nLayers, nHeads] = known.shape;
    const most = Math.log2(Math.max(n, 2));
    const entropy = wordsOf(known.entropy).map((x) => x * most);
    const sink = wordsOf(known.sink);
    const weights = bytesOf(known.weights);
    const row = strip.querySelector(".token-row");
    const said = strip.querySelector(".token-said");
    let chosen = n - 1;

    const tokens = [...row.children].map((span, i) => {
      const token = Object.assign(document.createElement("button"), { type: "button", className: "token", textContent: span.textContent });
      token.addEventListener("click", () => choose(i));
      token.addEventListener("mouseenter", () => choose(i));
      span.replaceWith(token);
      return token;
    });
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", "Tokens: choose one to see where it attends");

    const kind = document.createElement("select");
    for (const [name, words] of KINDS) {
      if (name === "belief" && known.belief.every((x) => x === null)) continue;
      kind.append(new Option(words, name));
    }
    kind.addEventListener("input", show);
    const layer = slider("layer", nLayers, show);
    const head = slider("head", nHeads, show);
    const controls = strip.querySelector(".token-controls");
    controls.append(control("colour", kind), layer.label, head.label);
    controls.hidden = false;

    const place = () => layer.at() * nHeads + head.at();
    const weightAt = (at, from, to) => (to > from ? 0 : weights[(at * n * (n + 1)) / 2 + (from * (from + 1)) / 2 + to] / 255);
    const maps = strip.querySelector(".token-maps");
    const large = maps.querySelector(".token-map");
    const grid = maps.querySelector(".token-grid");
    grid.style.setProperty("--layers", nLayers);
    maps.hidden = false;
    const heads = Array.from({ length: nHeads * nLayers }, (_, i) => {
      const [of, at] = [Math.floor(i / nLayers), i % nLayers]; // a row is a head, a column a layer
      const button = Object.assign(document.createElement("button"), { type: "button", title: `layer ${at}, head ${of}` });
      button.setAttribute("aria-label", button.title);
      button.append(picture(n, (from, to) => weightAt(at * nHeads + of, from, to)));
      button.addEventListener("click", () => chooseHead(at, of));
      grid.append(button);
      return button;
    });

    function chooseHead(at, of) {
      layer.set(at);
      head.set(of);
      show();
    }

    grid.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
      if (!step) return;
      event.preventDefault();
      const [at, of] = [layer.at() + step[0], head.at() + step[1]];
      if (at < 0 || at >= nLayers || of < 0 || of >= nHeads) return;
      chooseHead(at, of);
      heads[of * nLayers + at].focus();
    });
    large.addEventListener("click", (event) => {
      const box = large.getBoundingClientRect();
      choose(Math.min(n - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * n))));
    });
    const values = {
      entropy: (i) => entropy[place() * n + i],
      sink: (i) => sink[place() * n + i],
      next_entropy: (i) => known.next_entropy[i],
      belief: (i) => known.belief[i],
    };
    const weight = (from, to) => weightAt(place(), from, to);
    let drawn = -1;

    function show() {
      const [name, , unit] = KINDS.find(([each]) => each === kind.value);
      const all = tokens.map((_, i) => values[name](i));
      const top = Math.max(...all.filter((x) => x !== null), 1e-9);
      tokens.forEach((token, i) => {
        const x = all[i];
        token.style.setProperty("--share", x === null ? 0 : name === "sink" ? x : x / top);
        token.style.setProperty("--weight", weight(chosen, i));
        token.classList.toggle("unknown", x === null);
        token.setAttribute("aria-pressed", i === chosen);
        token.tabIndex = i === chosen ? 0 : -1;
        const value = x === null ? "not known" : `${x.toFixed(2)} ${unit}`;
        token.setAttribute("aria-label", `${token.textContent}, position ${i}, ${value.trim()}`);
        token.title = `position ${i}: ${value.trim()}`;
      });
      heads.forEach((button, i) => {
        const isChosen = i === head.at() * nLayers + layer.at();
        button.setAttribute("aria-pressed", isChosen);
        button.tabIndex = isChosen ? 0 : -1;
      });
      if (drawn !== place()) {
        drawn = place();
        large.replaceChildren(picture(n, weight));
        large.setAttribute("aria-label", `Attention of layer ${layer.at()}, head ${head.at()}: queries down, keys across`);
      }
      large.style.setProperty("--row", chosen / n);
      large.style.setProperty("--step", 1 / n);
      tell();
    }

    function tell() {
      const facts = KINDS.filter(([name]) => (values[name](chosen) ?? null) !== null)
        .map(([name, words, unit]) => `${words} ${values[name](chosen).toFixed(2)} ${unit}`.trim());
      const seen = tokens.map((_, i) => [i, weight(chosen, i)]).filter(([, w]) => w >= 0.01)
        .sort((a, b) => b[1] - a[1]).slice(0, 5)
        .map(([i, w]) => `“${tokens[i].textContent}” at ${i} (${w.toFixed(2)})`);
      said.textContent = `“${tokens[chosen].textContent}” at ${chosen}, layer ${layer.at()}, head ${head.at()}: ${facts.join("; ")}. ` +
        `It attends to ${seen.join(", ") || "nothing above 0.01"}.`;
    }

    function choose(i) {
      chosen = i;
      show();
    }

    row.addEventListener("keydown", (event) => {
      const to = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, Home: 0, End: n - 1 }[event.key];
      if (to === undefined || to < 0 || to >= n) return;
      event.preventDefault();
      choose(to);
      tokens[to].focus();
    });
    show();
  }

  document.querySelectorAll(".tokens:not([data-alive])").forEach(enliven);
})();
