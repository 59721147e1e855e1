// A histogram whose bars, and a plot whose regions, are choices of cases.
const BARS = 20;

function edgesOf(column) {
  const { low, high, log } = spanOf(column);
  const [bend, straight] = log ? [(value) => Math.log10(value + 1), (bent) => 10 ** bent - 1] : [Number, Number];
  if (log || column.kind === "score") return Array.from({ length: BARS + 1 }, (_, k) => Number(straight(bend(low) + (k / BARS) * (bend(high) - bend(low))).toPrecision(6)));
  const raw = (high - low) / (BARS - 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= raw * (1 - 1e-9));
  const first = Math.floor(low / step) * step;
  const edges = [];
  for (let k = 0; edges.length < 2 || edges.at(-1) <= high; k++) edges.push(Number((first + k * step).toPrecision(12)));
  return edges;
}

// bars of counts, each a link with words; `chosen` are the parts of them that stand out
function barsOf(counts, { width, height, least = 0, chosen = counts, linkOf, wordsOf, label, extra = [], box = "" }) {
  const highest = Math.max(1, ...counts);
  const step = width / counts.length;
  const gap = step > 10 ? 1 : 0.5;
  const tall = (count) => (count ? least + ((height - least) * count) / highest : 0);
  const bar = (kind, k, count) => svg("rect", { class: kind, x: (k * step + gap).toFixed(1), width: (step - 2 * gap).toFixed(1), y: (height - tall(count)).toFixed(1), height: tall(count).toFixed(1) });
  const links = counts.map((count, k) => {
    if (!count) return null;
    const parts = [svg("title", {}, wordsOf(k)), svg("rect", { class: "hit", x: (k * step).toFixed(1), width: step.toFixed(1), y: 0, height }), bar("all", k, count), bar("right", k, chosen[k])];
    return linkOf ? svg("a", { href: linkOf(k), "aria-label": wordsOf(k), tabindex: least ? -1 : undefined }, ...parts) : svg("g", {}, ...parts);
  });
  return svg("svg", { viewBox: box || `0 0 ${width} ${height + 1}`, width: box ? undefined : width, height: box ? undefined : height + 1, role: "group", "aria-label": label }, svg("path", { class: "axis", d: `M0 ${height}.5H${width}` }), ...links, ...extra);
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
    const column = this.page.column.get(state.get("h") ?? this.page.sort) ?? this.numeric[0];
    this.choice.replaceChildren(select("measure of the histogram", optionsOf(this.numeric), column.key, (value) => State.here().with({ h: value }).go({ replace: true })));
    const edges = edgesOf(column);
    const all = this.count(column, edges, column.raw.keys());
    const chosen = this.count(column, edges, order).bars;
    const [width, height, last] = [this.drawn || 520, 200, all.bars.length - 1];
    const wordsOf = (k) => `${short(edges[k])} to ${short(edges[k + 1])}: ${plural(all.bars[k], "case")}${chosen[k] === all.bars[k] ? "" : `, ${whole(chosen[k])} of them chosen`}`;
    const linkOf = (k) => state.with({ [`in.${column.key}`]: `${edges[k]}..${k === last ? "" : "<"}${edges[k + 1]}` }).link;
    const labels = [0, 0.25, 0.5, 0.75, 1].map((share) => {
      const k = Math.round(share * (last + 1));
      return svg("text", { x: ((k * width) / (last + 1)).toFixed(1), y: height + 16, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, short(edges[k]));
    });
    const most = svg("text", { x: 0, y: -5 }, plural(Math.max(1, ...all.bars), "case"));
    const picture = barsOf(all.bars, { width, height, chosen, linkOf, wordsOf, label: `histogram of ${column.title}`, extra: [...labels, most], box: `0 -18 ${width} ${height + 38}` });
    const others = ["undefined", "failed"].filter((word) => all[word]).map((word) => el("a", { href: state.with({ [`un.${column.key}`]: word }).link }, `${whole(all[word])} ${word}`));
    this.drawing.replaceChildren(picture, el("p", { class: "minor" }, ...others.flatMap((link, k) => (k ? [" · ", link] : [link]))));
  }

  count(column, edges, order) {
    const found = { bars: new Array(edges.length - 1).fill(0), undefined: 0, failed: 0 };
    for (const i of order) {
      const value = column.value(i);
      if (Number.isNaN(value)) found.undefined++;
      else if (!Number.isFinite(value)) found.failed++;
      else found.bars[Math.min(found.bars.length - 1, Math.max(0, edges.findLastIndex((edge) => edge <= value)))]++;
    }
    return found;
  }
}

// a drag chooses the cases of a region, a click opens a case
class Scatter {
  constructor(place, page, linkOf) {
    Object.assign(this, { page, linkOf, chosen: new Set() });
    this.numeric = page.columns.filter((column) => !column.isText);
    this.choice = el("span");
    this.place = el("div", { class: "plot" });
    place.replaceChildren(el("h3", {}, this.choice), this.place, el("p", { class: "minor" }, "Drag to choose cases; click a point to open it."));
  }

  show(state, cases, { order }) {
    const find = (name, other) => this.page.column.get(state.get(name) ?? other) ?? this.numeric[0];
    const [x, y] = [find("x", this.page.size), find("y", this.page.sort)];
    this.chosen = new Set(order);
    if (x === this.x && y === this.y) return this.plot.redraw();
    Object.assign(this, { x, y });
    const pick = (name, column) => select(`${name} axis`, optionsOf(this.numeric), column.key, (value) => State.here().with({ [name]: value }).go({ replace: true }));
    this.choice.replaceChildren(pick("y", y), " against ", pick("x", x));
    this.plot?.destroy();
    this.place.replaceChildren();
    const ends = [x, y].map(spanOf);
    const scale = ({ low, high, log }) => ({ range: [low, high], distr: log ? 4 : 1 });
    const names = [x, y].map((column, k) => column.title + (ends[k].log ? ", logarithmic" : ""));
    const digits = (value, round) => {
      const unit = 10 ** (Math.floor(Math.log10(Math.abs(value) || 1)) - 3);
      return Number((round(value / unit) * unit).toPrecision(4));
    };
    const range = ([low, high]) => `${digits(low, Math.floor)}..${digits(high, Math.ceil)}`; // outward, so that no case at an end is lost
    this.plot = chart(this.place, {
      label: "cases by two measures; drag to choose a region, click a point to open its case",
      names,
      data: [ends[0].log ? [0, 1] : [ends[0].low, ends[0].high], [null, null]],
      series: [{ show: true, points: { show: false } }],
      scales: { x: scale(ends[0]), y: scale(ends[1]) },
      height: 240,
      drag: { x: true, y: true },
      hooks: { draw: [(plot) => this.paint(plot)] },
      onSelect: (plot, across, up) => State.here().with({ [`in.${x.key}`]: range(across), [`in.${y.key}`]: range(up) }).go(),
      onHover: (plot, left, top) => {
        const i = this.page.n > 20000 ? -1 : this.nearest(left, top);
        return i < 0 ? "" : `${this.page.column.get("id").raw[i]}: ${y.text(i)}`;
      },
    });
    this.plot.over.id = "scatter";
    this.plot.over.addEventListener("click", (event) => {
      const box = this.plot.over.getBoundingClientRect();
      const i = this.nearest(event.clientX - box.left, event.clientY - box.top);
      if (i >= 0) goTo(this.linkOf(i));
    });
  }

  // the place of a case; NaN where a value is undefined or infinite
  spot(plot, i, canvas = false) {
    const [x, y] = [this.x.value(i), this.y.value(i)];
    return Number.isFinite(x) && Number.isFinite(y) ? [plot.valToPos(x, "x", canvas), plot.valToPos(y, "y", canvas)] : [NaN, NaN];
  }

  paint(plot) {
    const { n } = this.page;
    const size = (n > 2000 ? 2 : n > 100 ? 4 : 6) * devicePixelRatio;
    for (const [wanted, colour, alpha] of [[false, "soft", 0.25], [true, "accent", n > 2000 ? 0.5 : 0.8]]) {
      Object.assign(plot.ctx, { fillStyle: colourOf(colour), globalAlpha: alpha });
      for (let i = 0; i < n; i++) {
        if (this.chosen.has(i) !== wanted) continue;
        const [left, top] = this.spot(plot, i, true);
        if (left === left && top === top) plot.ctx.fillRect(left - size / 2, top - size / 2, size, size);
      }
    }
    plot.ctx.globalAlpha = 1;
  }

  nearest(x, y) {
    let [best, least] = [-1, 100];
    for (const i of this.chosen) {
      const [left, top] = this.spot(this.plot, i);
      const distance = (left - x) ** 2 + (top - y) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }
}
