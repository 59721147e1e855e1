// A histogram whose bars, and a plot whose regions, are choices of cases.
const BARS = 20;

function edgesOf(column) {
  const [low, high] = column.ends;
  const log = isLog(column.ends);
  const [bend, straight] = log ? [(value) => Math.log10(value + 1), (bent) => 10 ** bent - 1] : [Number, Number];
  const share = (k) => bend(low) + (k / BARS) * (bend(high) - bend(low));
  if (log || column.kind === "score") return Array.from({ length: BARS + 1 }, (_, k) => Number(straight(share(k)).toPrecision(6)));
  const raw = (high - low) / (BARS - 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= raw * (1 - 1e-9));
  const first = Math.floor(low / step) * step;
  const edges = [];
  for (let k = 0; edges.length < 2 || edges.at(-1) <= high; k++) edges.push(Number((first + k * step).toPrecision(12)));
  return edges;
}

// bars of counts, each a link with words; `chosen` are the parts of them that stand out, and `least` is the lowest bar
function fillBars(place, counts, { chosen = counts, least = 0, label, wordsOf, linkOf, tabindex }) {
  const highest = Math.max(1, ...counts);
  place.setAttribute("aria-label", label);
  place.replaceChildren(...counts.map((count, k) => {
    if (!count) return el("span");
    const style = { "--all": Math.max(least, count / highest), "--chosen": (Math.max(least, count / highest) * chosen[k]) / count };
    if (!linkOf) return el("span", { title: wordsOf(k), style });
    return el("a", { href: linkOf(k), title: wordsOf(k), "aria-label": wordsOf(k), tabindex, style });
  }));
}

class Histogram {
  constructor(place) {
    [this.choice, this.highest, this.bars, this.ends, this.others] = place.querySelectorAll("h3 span, .minor, .bars, .ends");
  }

  show({ page, state, order }) {
    const [column, choice] = measureOf({ page, state }, "h", page.sort, "measure of the histogram");
    this.choice.replaceChildren(choice);
    const edges = edgesOf(column);
    const [all, { bars: chosen }] = [page.ids.keys(), order].map((cases) => this.count(column, edges, cases));
    const last = all.bars.length - 1;
    const part = (k) => (chosen[k] === all.bars[k] ? "" : `, ${whole(chosen[k])} of them chosen`);
    const wordsOf = (k) => `${short(edges[k])} to ${short(edges[k + 1])}: ${plural(all.bars[k], "case")}${part(k)}`;
    const linkOf = (k) => state.with({ [`in.${column.key}`]: `${edges[k]}..${k === last ? "" : "<"}${edges[k + 1]}` }).link;
    fillBars(this.bars, all.bars, { chosen, label: `histogram of ${column.title}`, wordsOf, linkOf });
    this.highest.textContent = plural(Math.max(1, ...all.bars), "case");
    const ends = [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (last + 1)));
    this.ends.replaceChildren(...ends.map((k) => el("span", { style: { left: `${(100 * k) / (last + 1)}%` } }, short(edges[k]))));
    const words = ["undefined", "failed"].filter((word) => all[word]);
    const links = words.map((word) => el("a", { href: state.with({ [`un.${column.key}`]: word }).link }, `${whole(all[word])} ${word}`));
    this.others.replaceChildren(...links.flatMap((link, k) => (k ? [" · ", link] : [link])));
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

// a number of four digits that lies outward of another
function digits(value, round) {
  const unit = 10 ** (Math.floor(Math.log10(Math.abs(value) || 1)) - 3);
  return Number((round(value / unit) * unit).toPrecision(4));
}

// a drag chooses the cases of a region, a click opens a case
class Scatter {
  constructor(place, page) {
    this.page = page;
    [this.choice, this.place] = place.children;
  }

  show({ page, state, order }) {
    const [x, across] = measureOf({ page, state }, "x", page.size, "x axis");
    const [y, up] = measureOf({ page, state }, "y", page.sort, "y axis");
    this.chosen = new Set(order);
    if (x === this.x && y === this.y) return this.plot.redraw();
    Object.assign(this, { x, y });
    this.choice.replaceChildren(up, " against ", across);
    this.plot?.destroy();
    const scaleOf = ({ ends }) => ({ range: ends, distr: isLog(ends) ? 4 : 1 });
    const range = ([low, high]) => `${digits(low, Math.floor)}..${digits(high, Math.ceil)}`; // no case at an end is lost
    this.plot = chart(this.place, {
      label: "cases by two measures; drag to choose a region, click a point to open its case",
      names: [x, y].map(({ title, ends }) => title + (isLog(ends) ? ", logarithmic" : "")),
      data: [isLog(x.ends) ? [0, 1] : x.ends, [null, null]],
      series: [{ show: true, points: { show: false } }],
      scales: { x: scaleOf(x), y: scaleOf(y) },
      height: 240,
      drag: { x: true, y: true },
      hooks: { draw: [(plot) => this.paint(plot)] },
      onSelect: (across, up) => State.here().with({ [`in.${x.key}`]: range(across), [`in.${y.key}`]: range(up) }).go(),
      onHover: (plot, left, top) => {
        const i = this.page.n > 20000 ? -1 : this.nearest(left, top);
        return i < 0 ? "" : `${this.page.ids[i]}: ${y.text(i)}`;
      },
    });
    this.plot.over.id = "scatter";
    this.plot.over.addEventListener("click", () => {
      const i = this.nearest(this.plot.cursor.left, this.plot.cursor.top);
      if (i >= 0) withCase(this.page, i).go();
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
        plot.ctx.fillRect(left - size / 2, top - size / 2, size, size); // nothing at NaN
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
