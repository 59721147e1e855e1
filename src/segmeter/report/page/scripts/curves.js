// The curves of a training, all over the same axis and zoomed in step, and its pictures step by step.
const HUES = 11; // colours before they come again
const SPOT = 4; // radius of the mark at a best value

const colourOfLine = (k) => `hsl(${(215 + 137.5 * (k % HUES)) % 360} ${k < HUES ? 70 : 45}% ${matchMedia("(prefers-color-scheme: dark)").matches ? 66 : 44}%)`;

class Curves {
  constructor(place, tools, { charts, best }) {
    Object.assign(this, { charts, best, axis: "step", range: null });
    const axes = ["step", "epoch", "seconds"].filter((name) => charts.some((chart) => chart.lines.some((line) => line[name].some((x) => x !== null))));
    const whole = el("button", { type: "button", id: "whole", onclick: () => this.zoom(null) }, "whole run");
    tools.replaceChildren(select("horizontal axis", axes.map((name) => ({ value: name, label: name })), "step", (name) => ((this.axis = name), this.zoom(null))), whole, el("span", { class: "minor" }, "Drag over a chart to see a part of the run."));
    this.plots = charts.map((chart) => new Curve(chart, this));
    place.replaceChildren(...this.plots.map((curve) => curve.node));
  }

  zoom(range) {
    this.range = range;
    for (const curve of this.plots) curve.plot.draw();
  }

  ends() {
    if (this.range) return this.range;
    const xs = this.charts.flatMap((chart) => chart.lines.flatMap((line) => line[this.axis].filter((x) => x !== null)));
    const [low, high] = xs.reduce(([low, high], x) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);
    return high > low ? [low, high] : [low - 0.5, low + 0.5];
  }
}

class Curve {
  constructor(chart, all) {
    Object.assign(this, { chart, all, hidden: new Set() });
    this.plot = new Plot(`${chart.title}, ${chart.axis} by ${all.axis}`, () => this.paint(), { height: 250 });
    this.legend = el("div", { class: "chips" }, ...chart.lines.map((line, k) => this.entry(line, k)));
    this.node = el("figure", { class: "chart" }, el("figcaption", {}, chart.title), this.plot.node, this.legend);
    const { canvas } = this.plot;
    canvas.addEventListener("pointerdown", (event) => {
      this.from = this.plot.at(event)[0];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.end(event));
    canvas.addEventListener("pointerleave", (event) => this.plot.point(event, ""));
    canvas.addEventListener("dblclick", () => all.zoom(null));
  }

  // a line's name with its best and last value; a click hides it, a double click leaves it alone
  entry(line, k) {
    const last = line.values.findLast((value) => value !== null);
    const best = line.best === null ? "" : ` best ${short(line.values[line.best])} at ${short(line.step[line.best])},`;
    const swatch = svg("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, rx: 2, fill: colourOfLine(k) }));
    const node = el("button", { type: "button", class: "chip", "aria-pressed": "true" }, swatch, el("span", {}, line.name), el("span", { class: "minor" }, `${best} last ${short(last)}`));
    const set = () => {
      [...this.legend.children].forEach((button, j) => button.setAttribute("aria-pressed", String(!this.hidden.has(j))));
      this.plot.draw();
    };
    node.addEventListener("click", () => (this.hidden.has(k) ? this.hidden.delete(k) : this.hidden.add(k), set()));
    node.addEventListener("dblclick", () => ((this.hidden = new Set(this.chart.lines.keys())), this.hidden.delete(k), set()));
    return node;
  }

  shown() {
    return this.chart.lines.map((line, k) => [line, k]).filter(([, k]) => !this.hidden.has(k));
  }

  paint() {
    const { plot, all } = this;
    const [left, right] = all.ends();
    this.across = new Scale(left, right);
    const xs = (line) => line[all.axis];
    const values = this.shown().flatMap(([line]) => line.values.filter((value, i) => value !== null && xs(line)[i] >= left && xs(line)[i] <= right));
    const low = values.reduce((least, value) => Math.min(least, value), Infinity);
    const high = values.reduce((most, value) => Math.max(most, value), -Infinity);
    const room = (high - low || Math.abs(high) || 1) * 0.05;
    this.up = values.length ? new Scale(low - room, high + room) : new Scale(0, 1);
    plot.axes(this.across, this.up, [all.axis, this.chart.axis]);
    const { context } = plot;
    context.save();
    context.beginPath();
    context.rect(plot.margin.left, plot.margin.top - SPOT, plot.width + SPOT, plot.height + 2 * SPOT);
    context.clip();
    if (all.axis === "step" && all.best !== null && this.chart.axis === "score") this.upright(all.best);
    for (const [line, k] of this.shown()) this.line(line, k);
    context.restore();
    if (this.drag) {
      context.fillStyle = colourOf("accent");
      context.globalAlpha = 0.15;
      context.fillRect(plot.x(Math.min(...this.drag)), plot.margin.top, Math.abs(this.drag[1] - this.drag[0]) * plot.width, plot.height);
      context.globalAlpha = 1;
    }
  }

  // where the best checkpoint was taken
  upright(step) {
    const { plot } = this;
    const left = plot.x(this.across.place(step));
    plot.context.strokeStyle = colourOf("soft");
    plot.context.setLineDash([4, 4]);
    plot.context.beginPath();
    plot.context.moveTo(left, plot.y(0));
    plot.context.lineTo(left, plot.y(1));
    plot.context.stroke();
    plot.context.setLineDash([]);
  }

  line(line, k) {
    const { plot } = this;
    const { context } = plot;
    const spot = (i) => [plot.x(this.across.place(line[this.all.axis][i])), plot.y(this.up.place(line.values[i]))];
    context.strokeStyle = context.fillStyle = colourOfLine(k);
    context.lineWidth = 1.8;
    context.lineJoin = "round";
    context.beginPath();
    let drawn = false;
    line.values.forEach((value, i) => {
      const there = value !== null && line[this.all.axis][i] !== null;
      if (there && drawn) context.lineTo(...spot(i));
      else if (there) context.moveTo(...spot(i));
      const alone = there && !drawn && (i + 1 === line.values.length || line.values[i + 1] === null);
      if (alone) context.arc(...spot(i), 2, 0, 7);
      drawn = there;
    });
    context.stroke();
    if (line.best === null || line[this.all.axis][line.best] === null) return;
    context.beginPath();
    context.arc(...spot(line.best), SPOT, 0, 7);
    context.fill();
  }

  move(event) {
    const [x] = this.plot.at(event);
    if (this.from !== undefined) {
      this.drag = [this.from, x].map((share) => Math.min(1, Math.max(0, share)));
      this.plot.draw();
      return;
    }
    const at = this.across.value(x);
    const parts = this.shown().map(([line]) => {
      const xs = line[this.all.axis];
      let nearest = -1;
      xs.forEach((place, i) => {
        if (line.values[i] !== null && place !== null && (nearest < 0 || Math.abs(place - at) < Math.abs(xs[nearest] - at))) nearest = i;
      });
      return nearest < 0 ? null : `${line.name} ${short(line.values[nearest])}`;
    });
    this.plot.point(event, x >= 0 && x <= 1 ? `${this.all.axis} ${short(at)}: ${parts.filter(Boolean).slice(0, 8).join(", ")}` : "");
  }

  end() {
    const { drag } = this;
    this.from = this.drag = undefined;
    if (drag && Math.abs(drag[1] - drag[0]) * this.plot.width > 5) this.all.zoom(drag.map((share) => this.across.value(share)).sort((a, b) => a - b));
    else this.plot.draw();
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
