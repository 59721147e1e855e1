// Numbers -> places on a chart, and its axes on a canvas.
function roundTicks(low, high, most) {
  if (!(high > low)) return [low];
  const raw = (high - low) / (most - 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= raw * (1 - 1e-9));
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k <= Math.floor(high / step + 1e-9); k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

const POWERS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];

// at most four digits: 12500 is 12.5k
function short(value) {
  const size = Math.abs(value);
  const [power, letter] = POWERS.find(([least]) => size >= least) ?? [1, ""];
  if (size && size < 0.001) return value.toExponential(1);
  return Number((value / (letter === "k" ? 1000 : power)).toPrecision(4)) + letter;
}

// a scale from values to [0, 1]: of a score 0 to 1, of numbers that span more than three powers of ten a logarithm
class Scale {
  constructor(low, high, { log = false, only } = {}) {
    Object.assign(this, { low, high, log, only });
    [this.from, this.to] = [this.bend(low), this.bend(high)];
  }

  static of(column) {
    const [low, high] = column.ends;
    if (column.kind === "score") return new Scale(0, 1);
    if (!(high >= low)) return new Scale(0, 1);
    if (high === low) return new Scale(low - 0.5, high + 0.5, { only: low });
    if (low >= 0 && high > 1000 && high / Math.max(low, 1) > 1000) return new Scale(low, high, { log: true });
    return new Scale(low, high);
  }

  bend(value) {
    return this.log ? Math.log10(value + 1) : value;
  }

  place(value) {
    return (this.bend(value) - this.from) / (this.to - this.from);
  }

  value(place) {
    const bent = this.from + place * (this.to - this.from);
    return this.log ? 10 ** bent - 1 : bent;
  }

  ticks(most) {
    if (this.only !== undefined) return [this.only];
    if (!this.log) {
      const ticks = roundTicks(this.low, this.high, most);
      return ticks.length > 1 ? ticks : roundTicks(this.low, this.high, most + 2); // one alone shows no scale
    }
    const ticks = [];
    for (let power = 0; power <= Math.log10(this.high) + 1e-9; power++) ticks.push(10 ** power);
    return [0, ...ticks].filter((tick) => tick >= this.low && tick <= this.high);
  }
}

// a canvas that is sharp on any screen, with axes, and drawn again when its size changes
class Plot {
  constructor(label, draw, { height = 240, margin = { left: 58, right: 22, top: 10, bottom: 40 } } = {}) {
    this.canvas = el("canvas", { role: "img", "aria-label": label });
    this.tip = el("div", { class: "tip", hidden: true });
    this.node = el("div", { class: "plot" }, this.canvas, this.tip);
    this.draw = () => {
      const width = this.canvas.clientWidth;
      if (!width) return;
      this.margin = typeof margin === "function" ? margin(width) : { ...margin };
      const high = typeof height === "number" ? height : height(width);
      this.canvas.style.height = `${high}px`;
      const ratio = devicePixelRatio || 1;
      [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(high * ratio)];
      this.context = this.canvas.getContext("2d");
      this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.width = width - this.margin.left - this.margin.right;
      this.height = high - this.margin.top - this.margin.bottom;
      this.context.font = "12px system-ui, sans-serif";
      draw(this);
    };
    new ResizeObserver(this.draw).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.draw);
  }

  x(share) {
    return this.margin.left + share * this.width;
  }

  y(share) {
    return this.margin.top + (1 - share) * this.height;
  }

  // the place of a pointer as shares of the axes
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left - this.margin.left) / this.width, 1 - (event.clientY - box.top - this.margin.top) / this.height];
  }

  axes(horizontal, vertical, names) {
    const { context } = this;
    context.fillStyle = colourOf("soft");
    context.strokeStyle = colourOf("line");
    context.lineWidth = 1;
    const texts = vertical.ticks(5).map((tick) => context.measureText(short(tick)).width);
    const room = Math.max(58, Math.max(...texts, 0) + 30) - this.margin.left; // for the ticks and the axis' name
    this.margin.left += room;
    this.width -= room;
    context.textAlign = "center";
    let before; // where all digits that are shown are the same, once
    for (const tick of horizontal.ticks(Math.max(3, Math.min(7, Math.floor(this.width / 80))))) {
      if (short(tick) !== before) context.fillText((before = short(tick)), this.x(horizontal.place(tick)), this.margin.top + this.height + 16);
    }
    context.textAlign = "right";
    for (const tick of vertical.ticks(5)) {
      const top = this.y(vertical.place(tick));
      context.fillText(short(tick), this.margin.left - 8, top + 4);
      context.beginPath();
      context.moveTo(this.x(0), top);
      context.lineTo(this.x(1), top);
      context.stroke();
    }
    context.textAlign = "center";
    context.fillText(this.fitted(names[0], this.width), this.x(0.5), this.margin.top + this.height + 34);
    context.save();
    context.translate(12, this.y(0.5));
    context.rotate(-Math.PI / 2);
    context.fillText(this.fitted(names[1], this.height), 0, 0);
    context.restore();
  }

  fitted(text, room) {
    let cut = text;
    while (cut.length > 1 && this.context.measureText(cut).width > room) cut = cut.slice(0, -2) + "…";
    return cut;
  }

  point(event, text) {
    this.tip.hidden = !text;
    if (!text) return;
    this.tip.textContent = text;
    const box = this.node.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 4);
    Object.assign(this.tip.style, { left: `${Math.max(0, left)}px`, top: `${event.clientY - box.top + 14}px` });
  }
}
