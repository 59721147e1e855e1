// The curves of a training, all over the same axis and zoomed in step, and its pictures step by step.
const known = (values) => values.filter((value) => value !== null);

class Curves {
  constructor(place, tools, { charts, best }) {
    Object.assign(this, { charts, best, place });
    const axes = ["step", "epoch", "seconds"].filter((name) => charts.some(({ lines }) => lines.some((line) => known(line[name]).length)));
    tools.firstElementChild.append(select("horizontal axis", axes.map((name) => ({ value: name, label: name })), "step", (name) => this.draw(name)));
    byId("whole").onclick = () => this.zoom(this.ends);
    this.draw("step");
  }

  draw(axis) {
    this.range = this.ends = endsOf(this.charts.flatMap(({ lines }) => lines.flatMap((line) => line[axis])));
    const parts = this.charts.map(({ title }) => [el("figcaption", {}, title), el("div", { class: "plot" }), el("div", { class: "chips" })]);
    this.place.replaceChildren(...parts.map((each) => el("figure", { class: "chart" }, ...each)));
    this.plots = this.charts.map((each, k) => this.curve(parts[k][1], parts[k][2], each, axis));
  }

  zoom([min, max]) {
    this.range = [min, max];
    for (const plot of this.plots) plot.setScale("x", { min, max });
  }

  curve(place, legend, { title, axis: measured, lines }, axis) {
    const curves = lines.map((line) => [line.name, ...[line[axis], line.values].map((list) => list.filter((_, i) => line[axis][i] !== null))]);
    const data = joined(curves);
    const room = (plot, low, high) => (low === null ? [0, 1] : ((by) => [low - by, high + by])((high - low || Math.abs(high) || 1) * 0.05));
    // a line has a point at its best value
    const points = (line, k) => ({ show: true, filter: () => [data[0].indexOf(line[axis][line.best])], size: 9, fill: () => colourOfLine(k) });
    const plot = chart(place, {
      label: `${title}, ${measured} by ${axis}`,
      names: [axis, measured],
      data,
      series: lines.map((line, k) => ({ ...lineOf(k, line.name), ...(data[0].includes(line[axis][line.best]) && { points: points(line, k) }) })),
      scales: { x: { range: () => this.range }, y: { range: room } },
      hooks: { draw: axis === "step" && this.best !== null && measured === "score" ? [(plot) => this.mark(plot)] : [] },
      onSelect: (ends) => this.zoom(ends),
      onReset: () => this.zoom(this.ends),
      onHover: (plot, left) => this.said(plot, plot.posToVal(left, "x"), curves, axis),
    });
    // a line's name with its best and last value; a click hides it, a double click leaves it alone
    const show = (k, shown) => plot.setSeries(k + 1, { show: shown });
    legend.replaceChildren(...lines.map(({ name, best, step, values }, k) => {
      const words = `${best === null ? "" : ` best ${short(values[best])} at ${short(step[best])},`} last ${short(known(values).at(-1))}`;
      const alone = () => [...legend.children].forEach((chip, other) => show(other, (chip.ariaPressed = other === k)));
      const content = [swatchOf(colourOfLine(k)), el("span", {}, name), el("span", { class: "minor" }, words)];
      return toggle(content, true, (shown) => show(k, shown), { class: "chip", ondblclick: alone });
    }));
    return plot;
  }

  // where the best checkpoint was taken
  mark({ ctx, bbox, valToPos }) {
    const left = valToPos(this.best, "x", true);
    if (left < bbox.left || left > bbox.left + bbox.width) return;
    ctx.save();
    ctx.strokeStyle = colourOf("soft");
    ctx.setLineDash([4, 4]);
    ctx.stroke(new Path2D(`M${left} ${bbox.top}v${bbox.height}`));
    ctx.restore();
  }

  // the values nearest to a place
  said(plot, at, curves, axis) {
    const shown = curves.filter(([, xs], k) => plot.series[k + 1].show && xs.length);
    const parts = shown.map(([name, xs, values]) => {
      const away = (i) => (values[i] === null ? Infinity : Math.abs(xs[i] - at));
      return `${name} ${short(values[[...xs.keys()].reduce((best, i) => (away(i) < away(best) ? i : best))])}`;
    });
    return `${axis} ${short(at)}: ${parts.slice(0, 8).join(", ")}`;
  }
}

// one picture per case, all of the same step, which a slider chooses
function showSteps(pictures) {
  const steps = [...new Set(Object.values(pictures).flatMap((found) => Object.keys(found).map(Number)))].sort((a, b) => a - b);
  const images = Object.keys(pictures).map((name) => [name, el("img", { alt: `validation picture of ${name}` })]);
  const slider = byId("step");
  slider.oninput = () => {
    const step = steps[slider.value];
    byId("steps").querySelector("output").textContent = `step ${whole(step)}`;
    for (const [name, image] of images) {
      image.hidden = !(step in pictures[name]);
      if (!image.hidden) image.src = pictures[name][step];
    }
  };
  byId("over-time").replaceChildren(...images.map(([name, image]) => el("figure", {}, image, el("figcaption", {}, name))));
  Object.assign(slider, { max: steps.length - 1, value: steps.length - 1 });
  slider.oninput();
}

new Curves(byId("charts"), byId("curve-tools"), JSON.parse(byId("history").textContent));
if (byId("pictures-by-step")) showSteps(JSON.parse(byId("pictures-by-step").textContent));
document.documentElement.dataset.ready = "yes";
