// A histogram whose bars, and a plot whose regions, are choices of cases.
const BARS = 20;

function edgesOf(column) {
  const scale = Scale.of(column);
  if (column.kind === "score" || scale.log) return Array.from({ length: BARS + 1 }, (_, k) => Number(scale.value(k / BARS).toPrecision(6)));
  const ticks = roundTicks(scale.low, scale.high, BARS);
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  const first = Math.floor(scale.low / step) * step;
  const edges = [];
  for (let k = 0; edges.length < 2 || edges.at(-1) <= scale.high; k++) edges.push(Number((first + k * step).toPrecision(12)));
  return edges;
}

class Histogram {
  constructor(place, page) {
    this.page = page;
    this.numeric = page.columns.filter((column) => !column.isText);
    this.drawing = el("div", { class: "bars" });
    this.choice = el("span");
    place.replaceChildren(el("h3", {}, "distribution of ", this.choice), this.drawing);
    new ResizeObserver(() => this.drawing.clientWidth !== this.drawn && this.last && this.show(...this.last)).observe(this.drawing);
  }

  show(state, cases, { order }) {
    this.last = [state, cases, { order }];
    this.drawn = this.drawing.clientWidth;
    const key = state.get("h") ?? this.page.sort;
    const column = this.page.column.get(key) ?? this.numeric[0];
    this.choice.replaceChildren(select("measure of the histogram", optionsOf(this.numeric), column.key, (value) => State.here().with({ h: value }).go({ replace: true })));
    const edges = edgesOf(column);
    const [all, chosen] = [null, order].map((list) => this.count(column, edges, list));
    const highest = Math.max(1, ...all.bars);
    const [width, height, bars] = [this.drawn || 520, 200, all.bars.length];
    const step = width / bars;
    const links = all.bars.map((count, k) => {
      const last = k === bars - 1;
      const range = `${edges[k]}..${last ? "" : "<"}${edges[k + 1]}`;
      const words = `${short(edges[k])} to ${short(edges[k + 1])}: ${plural(count, "case")}${chosen.bars[k] === count ? "" : `, ${whole(chosen.bars[k])} of them chosen`}`;
      const bar = (kind, tall) => svg("rect", { class: kind, x: (k * step + 1).toFixed(1), width: (step - 2).toFixed(1), y: (height * (1 - tall / highest)).toFixed(1), height: ((height * tall) / highest).toFixed(1) });
      if (!count) return null;
      return svg("a", { href: state.with({ [`in.${column.key}`]: range }).link, "aria-label": words }, svg("title", {}, words), svg("rect", { class: "hit", x: (k * step).toFixed(1), width: step.toFixed(1), y: 0, height }), bar("all", count), bar("right", chosen.bars[k]));
    });
    const labels = [0, 0.25, 0.5, 0.75, 1].map((share) => {
      const k = Math.round(share * bars);
      return svg("text", { x: (k * step).toFixed(1), y: height + 16, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, short(edges[k]));
    });
    const most = svg("text", { x: 0, y: -5 }, plural(highest, "case"));
    const lines = svg("path", { class: "axis", d: `M0 .5H${width}M0 ${height}.5H${width}` });
    const picture = svg("svg", { viewBox: `0 -18 ${width} ${height + 38}`, role: "group", "aria-label": `histogram of ${column.title}` }, lines, ...links, ...labels, most);
    const others = ["undefined", "failed"].filter((word) => all[word]).map((word) => el("a", { href: state.with({ [`un.${column.key}`]: word }).link }, `${whole(all[word])} ${word}`));
    this.drawing.replaceChildren(picture, el("p", { class: "minor" }, ...others.flatMap((link, k) => (k ? [" · ", link] : [link]))));
  }

  count(column, edges, order) {
    const bars = new Array(edges.length - 1).fill(0);
    const found = { bars, undefined: 0, failed: 0 };
    const add = (i) => {
      const value = column.value(i);
      if (Number.isNaN(value)) found.undefined++;
      else if (!Number.isFinite(value)) found.failed++;
      else {
        let [low, high] = [0, bars.length - 1];
        while (low < high) {
          const middle = (low + high + 1) >> 1;
          if (value >= edges[middle]) low = middle;
          else high = middle - 1;
        }
        bars[low]++;
      }
    };
    if (order) order.forEach(add);
    else for (let i = 0; i < column.raw.length; i++) add(i);
    return found;
  }
}

class Scatter {
  constructor(place, page, linkOf) {
    Object.assign(this, { page, linkOf, brush: null, chosen: new Set() });
    this.numeric = page.columns.filter((column) => !column.isText);
    this.plot = new Plot("cases by two measures; drag to choose a region, click a point to open its case", () => this.paint());
    this.plot.canvas.id = "scatter";
    this.choice = el("span");
    place.replaceChildren(el("h3", {}, this.choice), this.plot.node, el("p", { class: "minor" }, "Drag to choose cases; click a point to open it."));
    const { canvas } = this.plot;
    canvas.addEventListener("pointerdown", (event) => this.start(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.end(event));
    canvas.addEventListener("pointercancel", () => this.stop());
    canvas.addEventListener("pointerleave", (event) => this.plot.point(event, ""));
  }

  show(state, cases, { order }) {
    const find = (name, other) => this.page.column.get(state.get(name) ?? other) ?? this.numeric[0];
    [this.x, this.y] = [find("x", this.page.size), find("y", this.page.sort)];
    this.chosen = new Set(order);
    const pick = (name, column) => select(`${name} axis`, optionsOf(this.numeric), column.key, (value) => State.here().with({ [name]: value }).go({ replace: true }));
    this.choice.replaceChildren(pick("y", this.y), " against ", pick("x", this.x));
    this.plot.draw();
  }

  paint() {
    if (!this.x) return;
    const { plot } = this;
    [this.across, this.up] = [Scale.of(this.x), Scale.of(this.y)];
    plot.axes(this.across, this.up, [this.x.title + (this.across.log ? ", logarithmic" : ""), this.y.title + (this.up.log ? ", logarithmic" : "")]);
    const size = this.page.n > 2000 ? 2 : this.page.n > 100 ? 4 : 6;
    const draw = (wanted, colour, alpha) => {
      plot.context.fillStyle = colour;
      plot.context.globalAlpha = alpha;
      for (let i = 0; i < this.page.n; i++) {
        if (this.chosen.has(i) !== wanted) continue;
        const [left, top] = this.spot(i);
        if (left === left && top === top) plot.context.fillRect(left - size / 2, top - size / 2, size, size);
      }
      plot.context.globalAlpha = 1;
    };
    draw(false, colourOf("soft"), 0.25);
    draw(true, colourOf("accent"), this.page.n > 2000 ? 0.5 : 0.8);
    if (!this.brush) return;
    const [x0, y0, x1, y1] = this.brush;
    plot.context.fillStyle = colourOf("accent");
    plot.context.globalAlpha = 0.15;
    plot.context.fillRect(plot.x(Math.min(x0, x1)), plot.y(Math.max(y0, y1)), Math.abs(x1 - x0) * plot.width, Math.abs(y1 - y0) * plot.height);
    plot.context.globalAlpha = 1;
  }

  // NaN where a value is undefined or infinite
  spot(i) {
    const [x, y] = [this.x.value(i), this.y.value(i)];
    return Number.isFinite(x) && Number.isFinite(y) ? [this.plot.x(this.across.place(x)), this.plot.y(this.up.place(y))] : [NaN, NaN];
  }

  nearest(event) {
    const box = this.plot.canvas.getBoundingClientRect();
    let [best, least] = [-1, 100];
    for (const i of this.chosen) {
      const [left, top] = this.spot(i);
      const distance = (left - event.clientX + box.left) ** 2 + (top - event.clientY + box.top) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  start(event) {
    const [x, y] = this.plot.at(event);
    this.brush = [x, y, x, y];
    this.plot.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.brush) {
      const i = this.page.n > 20000 ? -1 : this.nearest(event);
      return this.plot.point(event, i < 0 ? "" : `${this.page.column.get("id").raw[i]}: ${this.y.text(i)}`);
    }
    [this.brush[2], this.brush[3]] = this.plot.at(event);
    this.plot.draw();
  }

  stop() {
    this.brush = null;
    this.plot.draw();
  }

  end(event) {
    if (!this.brush) return;
    const [x0, y0, x1, y1] = this.brush;
    this.brush = null;
    const moved = Math.hypot((x1 - x0) * this.plot.width, (y1 - y0) * this.plot.height);
    if (moved >= 5) {
      const range = (scale, a, b) => [a, b].sort((one, other) => one - other).map((share) => Number(scale.value(share).toPrecision(4))).join("..");
      State.here().with({ [`in.${this.x.key}`]: range(this.across, x0, x1), [`in.${this.y.key}`]: range(this.up, y0, y1) }).go();
      return;
    }
    this.plot.draw();
    const i = this.nearest(event);
    if (i >= 0) goTo(this.linkOf(i));
  }
}
