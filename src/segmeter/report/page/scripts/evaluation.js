// The page of an evaluation: bars of each class, calibration, the confusion matrix, and the cases.

// A bar is a link to the cases with an IoU in its tenth. The class's own link opens the large histogram, whose bars the
// keyboard reaches.
function drawTenths(cell) {
  const name = cell.parentElement.cells[0].dataset.value;
  const [counts, key] = [cell.dataset.bars.split(",").map(Number), cell.dataset.of];
  const wordsOf = (k) => `IoU of ${isolated(name)} ${k / 10} to ${(k + 1) / 10}: ${plural(counts[k], "case")}`;
  const linkOf = (k) => new State().with({ [`in.${key}`]: `${k / 10}..${k === 9 ? "" : "<"}${(k + 1) / 10}`, sort: key, h: key }).link;
  cell.replaceChildren(barsOf(counts, { width: 80, height: 22, least: 2, chosen: counts, wordsOf, linkOf: key ? linkOf : null, label: `cases by IoU of ${name}` }));
}

// curves from 0 to 1; equal places are moved apart by too little to be seen, as each place has one value
function drawUnit(figure, { title, axes, lines }) {
  const place = el("div", { class: "plot" });
  figure.append(place);
  const unit = { range: [0, 1] };
  chart(place, {
    label: title,
    names: axes,
    data: joined(lines.map(({ name, xs, ys }) => [name, xs.map((x, i) => x + i * 1e-9), ys])),
    series: lines.map(({ name }, k) => lineOf(k, name)),
    scales: { x: unit, y: unit },
    onHover: (plot, left, top) => `${axes[0]} ${short(plot.posToVal(left, "x"))}, ${axes[1]} ${short(plot.posToVal(top, "y"))}`,
  });
  const keys = lines.map(({ name, last }, k) => el("span", { class: "key" }, swatchOf(colourOfLine(k)), name, last === null ? null : el("b", {}, ` ${short(last)}`)));
  figure.append(el("div", { class: "chips" }, ...keys));
}

async function startEvaluation() {
  const page = await readPage();
  page.pictures = picturesOf(page, JSON.parse(byId("layers").textContent));
  document.querySelectorAll("td[data-bars]").forEach(drawTenths);
  if (byId("curves-of-probabilities")) {
    const charts = JSON.parse(byId("curves-of-probabilities").textContent);
    document.querySelectorAll("figure[data-chart]").forEach((figure, k) => drawUnit(figure, charts[k]));
  }
  if (byId("matrix")) new Confusion(byId("matrix"), page);
  new Explorer(page);
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

startEvaluation().catch((error) => {
  const old = typeof DecompressionStream === "undefined";
  byId("table").textContent = old ? "This browser can't show the cases: it needs Chrome 80, Firefox 113 or Safari 16.4." : `The cases can't be shown: ${error}`;
  throw error;
});
