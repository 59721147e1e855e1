// The curves of a training, all over the same axis and zoomed in step, and its pictures step by step.
const SPOT = 4; // radius of the mark at a best value

class Curves {
  constructor(place, tools, { charts, best }) {
    Object.assign(this, { charts, best, place, range: null });
    const axes = ["step", "epoch", "seconds"].filter((name) => charts.some((each) => each.lines.some((line) => line[name].some((x) => x !== null))));
    const whole = el("button", { type: "button", id: "whole", onclick: () => this.zoom(null) }, "whole run");
    tools.replaceChildren(select("horizontal axis", axes.map((name) => ({ value: name, label: name })), "step", (name) => this.draw(name)), whole, el("span", { class: "minor" }, "Drag over a chart to see a part of the run."));
    this.draw("step");
  }

  draw(axis) {
    const xs = this.charts.flatMap((each) => each.lines.flatMap((line) => line[axis].filter((x) => x !== null)));
    const [low, high] = xs.reduce(([low, high], x) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);
    this.ends = high > low ? [low, high] : [low - 0.5, low + 0.5];
    this.range = null;
    this.plots = [];
    for (const [k, each] of this.charts.entries()) {
      const place = el("div", { class: "plot" });
      const legend = el("div", { class: "chips" });
      const figure = el("figure", { class: "chart" }, el("figcaption", {}, each.title), place, legend);
      if (this.place.children[k]) this.place.children[k].replaceWith(figure);
      else this.place.append(figure);
      this.plots.push(this.curve(place, legend, each, axis));
    }
    this.place.querySelector("noscript")?.remove();
  }

  zoom(range) {
    this.range = range;
    const [min, max] = range ?? this.ends;
    for (const plot of this.plots) plot.setScale("x", { min, max });
  }

  curve(place, legend, { title, axis: measured, lines }, axis) {
    const curves = lines.map((line) => [line.name, ...[line[axis], line.values].map((list) => list.filter((_, i) => line[axis][i] !== null))]);
    const room = (plot, low, high) => (low === null ? [0, 1] : ((by) => [low - by, high + by])((high - low || Math.abs(high) || 1) * 0.05));
    const plot = chart(place, {
      label: `${title}, ${measured} by ${axis}`,
      names: [axis, measured],
      data: joined(curves),
      series: lines.map((line, k) => lineOf(k, line.name)),
      scales: { x: { range: () => this.range ?? this.ends }, y: { range: room } },
      hooks: { draw: [(plot) => this.marks(plot, lines, axis, measured)] },
      onSelect: (_, ends) => this.zoom(ends),
      onReset: () => this.zoom(null),
      onHover: (plot, left) => this.said(plot, plot.posToVal(left, "x"), curves, axis),
    });
    // a line's name with its best and last value; a click hides it, a double click leaves it alone
    const show = (shownOf) => lines.forEach((_, k) => {
      const shown = shownOf(k);
      plot.setSeries(k + 1, { show: shown });
      legend.children[k].setAttribute("aria-pressed", String(shown));
    });
    legend.replaceChildren(...lines.map((line, k) => {
      const best = line.best === null ? "" : ` best ${short(line.values[line.best])} at ${short(line.step[line.best])},`;
      const last = line.values.findLast((value) => value !== null);
      const toggle = () => show((j) => (j === k ? !plot.series[j + 1].show : plot.series[j + 1].show));
      return el("button", { type: "button", class: "chip", "aria-pressed": "true", onclick: toggle, ondblclick: () => show((j) => j === k) }, swatchOf(colourOfLine(k)), el("span", {}, line.name), el("span", { class: "minor" }, `${best} last ${short(last)}`));
    }));
    return plot;
  }

  // the best value of each line, and where the best checkpoint was taken
  marks(plot, lines, axis, measured) {
    const { ctx } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(plot.bbox.left, plot.bbox.top - SPOT, plot.bbox.width + SPOT, plot.bbox.height + 2 * SPOT);
    ctx.clip();
    if (axis === "step" && this.best !== null && measured === "score") {
      const left = plot.valToPos(this.best, "x", true);
      ctx.strokeStyle = colourOf("soft");
      ctx.setLineDash([4, 4]);
      ctx.stroke(new Path2D(`M${left} ${plot.bbox.top}v${plot.bbox.height}`));
    }
    lines.forEach((line, k) => {
      if (line.best === null || line[axis][line.best] === null || !plot.series[k + 1].show) return;
      ctx.fillStyle = colourOfLine(k);
      ctx.beginPath();
      ctx.arc(plot.valToPos(line[axis][line.best], "x", true), plot.valToPos(line.values[line.best], "y", true), SPOT * devicePixelRatio, 0, 7);
      ctx.fill();
    });
    ctx.restore();
  }

  // the values nearest to a place
  said(plot, at, curves, axis) {
    const parts = curves.filter((_, k) => plot.series[k + 1].show).map(([name, xs, values]) => {
      let nearest = -1;
      xs.forEach((x, i) => {
        if (values[i] !== null && (nearest < 0 || Math.abs(x - at) < Math.abs(xs[nearest] - at))) nearest = i;
      });
      return nearest < 0 ? null : `${name} ${short(values[nearest])}`;
    });
    return `${axis} ${short(at)}: ${parts.filter(Boolean).slice(0, 8).join(", ")}`;
  }
}

// one picture per case, all of the same step, which a slider chooses
function showSteps(pictures) {
  const steps = [...new Set(Object.values(pictures).flatMap((found) => Object.keys(found).map(Number)))].sort((a, b) => a - b);
  const images = Object.keys(pictures).map((name) => [name, el("img", { alt: `validation picture of ${name}` })]);
  const said = el("output", {});
  const slider = el("input", { type: "range", min: 0, max: steps.length - 1, step: 1, "aria-label": "step of the validation" });
  const show = () => {
    const step = steps[slider.value];
    said.textContent = `step ${whole(step)}`;
    for (const [name, image] of images) {
      image.hidden = !(step in pictures[name]);
      if (!image.hidden) image.src = pictures[name][step];
    }
  };
  slider.addEventListener("input", show);
  byId("steps").replaceChildren(slider, said);
  byId("over-time").replaceChildren(...images.map(([name, image]) => el("figure", {}, image, el("figcaption", {}, name))));
  slider.value = steps.length - 1;
  show();
}

new Curves(byId("charts"), byId("curve-tools"), JSON.parse(byId("history").textContent));
if (byId("pictures-by-step")) showSteps(JSON.parse(byId("pictures-by-step").textContent));
document.documentElement.dataset.ready = "yes";
