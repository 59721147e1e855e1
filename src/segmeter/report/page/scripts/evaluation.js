// The page of an evaluation: bars of each class, calibration, the confusion matrix, and the cases.

// A bar is a link to the cases with an IoU in its tenth. The class's own link opens the large histogram, whose bars the
// keyboard reaches.
function drawTenths(place) {
  const [counts, { name, of: key }] = [place.dataset.bars.split(",").map(Number), place.dataset];
  const wordsOf = (k) => `IoU of ${isolated(name)} ${k / 10} to ${(k + 1) / 10}: ${plural(counts[k], "case")}`;
  const linkOf = (k) => new State().with({ [`in.${key}`]: `${k / 10}..${k === 9 ? "" : "<"}${(k + 1) / 10}`, sort: key, h: key }).link;
  fillBars(place, counts, { least: 0.1, wordsOf, linkOf: key ? linkOf : null, label: `cases by IoU of ${name}`, tabindex: -1 });
}

// curves from 0 to 1; equal places are moved apart by too little to be seen, as each place has one value
function drawUnit(figure, { title, axes, lines }) {
  const unit = { range: [0, 1] };
  chart(figure.appendChild(el("div", { class: "plot" })), {
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

start((page) => {
  page.pictures = picturesOf(page, JSON.parse(byId("layers").textContent));
  document.querySelectorAll("[data-bars]").forEach(drawTenths);
  const charts = JSON.parse(byId("curves-of-probabilities")?.textContent ?? "[]");
  document.querySelectorAll("figure[data-chart]").forEach((figure, k) => drawUnit(figure, charts[k]));
  if (byId("matrix")) drawConfusion(byId("matrix"), page);
  new Explorer(page);
});
