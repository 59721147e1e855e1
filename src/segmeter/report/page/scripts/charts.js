// Charts: uPlot with the colours of the page, and what all charts share.
const LONGEST = 46; // letters of an axis' name
const HUES = 11; // colours of lines before they repeat
const EDGE = 4; // pixels; a drag that ends this near to an edge means the edge, where the last point is

const isDark = matchMedia("(prefers-color-scheme: dark)");
const colourOfLine = (k) => `hsl(${(215 + 137.5 * (k % HUES)) % 360} ${k < HUES ? 70 : 45}% ${isDark.matches ? 66 : 44}%)`;
const snap = (at, end) => (at < EDGE ? 0 : at > end - EDGE ? end : at);

// at most four digits: 12500 is 12.5K
function short(value) {
  const size = Math.abs(value);
  const notation = size < 10000 ? "standard" : "compact";
  if (size && size < 0.001) return value.toExponential(1);
  return value.toLocaleString("en-US", { notation, maximumSignificantDigits: 4, useGrouping: false, signDisplay: "negative" });
}

// the ends of an axis of numbers, with room between them
function endsOf(values) {
  const wider = ([low, high], value) => [Math.min(low, value), Math.max(high, value)];
  const [low, high] = values.filter(Number.isFinite).reduce(wider, [Infinity, -Infinity]);
  return high > low ? [low, high] : high === low ? [low - 0.5, high + 0.5] : [0, 1];
}

// whether an axis has a logarithm: its numbers span more than three powers of ten
const isLog = ([low, high]) => low >= 0 && high > 1000 && high / Math.max(low, 1) > 1000;

const axisOf = (name, vertical) => ({
  label: name.length > LONGEST ? `${name.slice(0, LONGEST)}…` : name,
  labelSize: 20,
  labelFont: "12px system-ui, sans-serif",
  font: "12px system-ui, sans-serif",
  stroke: () => colourOf("soft"),
  grid: { show: vertical, width: 1, stroke: () => colourOf("line") },
  ticks: { show: false },
  size: vertical ? (plot, texts) => 10 + Math.max(24, ...(texts ?? []).map((text) => 7 * text.length)) : 26,
  space: vertical ? 40 : 70,
  values: (plot, ticks) => ticks.map((tick) => (tick === null ? "" : short(tick))),
});

// a chart as wide as its place, drawn again when that or the colour scheme changes; a drag tells `onSelect` its region
function chart(place, { label, names, data, series, scales = {}, height = 250, hooks = {}, drag = { x: true, y: false }, onSelect, onHover, onReset }) {
  const tip = el("div", { class: "tip" });
  let dragged = false; // whether the last press chose a region: uPlot calls any move a drag, even by a pixel
  const click = (_, event) => dragged && event.stopImmediatePropagation();
  const select = (plot) => {
    const { left, top, width, height: tall } = plot.select;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const across = [left, left + width].map((x) => plot.posToVal(snap(x, plot.over.clientWidth), "x"));
    const up = [top + tall, top].map((y) => plot.posToVal(snap(y, plot.over.clientHeight), "y"));
    if (!width && !tall) return;
    dragged = true;
    onSelect?.(across, up);
  };
  const hover = (plot) => {
    const { left, top } = plot.cursor;
    tip.textContent = (left >= 0 && !plot.select.width && onHover?.(plot, left, top)) || "";
    const shift = left > plot.over.clientWidth / 2 ? "calc(-100% - 12px)" : "12px";
    Object.assign(tip.style, { left: `${left}px`, top: `${top + 14}px`, translate: shift });
  };
  const plot = new uPlot({
    width: Math.max(200, place.clientWidth),
    height,
    padding: [10, 16, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { ...drag, setScale: false, dist: 5, click }, bind: { dblclick: () => () => onReset?.() } },
    scales: { x: { time: false, ...scales.x }, y: { ...scales.y } },
    axes: names.map((name, k) => axisOf(name, k === 1)),
    series: [{}, ...series],
    hooks: { ...hooks, setSelect: [select], setCursor: [hover] },
  }, data, place);
  plot.over.append(tip);
  plot.over.addEventListener("mousedown", () => (dragged = false));
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", label);
  new ResizeObserver(() => place.clientWidth && place.clientWidth !== plot.width && plot.setSize({ width: place.clientWidth, height })).observe(place);
  isDark.addEventListener("change", () => plot.redraw(false, true));
  return plot;
}

// curves [name, xs, ys] as one table over all their places; null breaks a line
const joined = (curves) => (curves.length ? uPlot.join(curves.map(([, xs, ys]) => [xs, ys])) : [[]]);

const lineOf = (k, name) => ({ label: name, width: 1.8, stroke: () => colourOfLine(k), points: { size: 5, fill: () => colourOfLine(k) } });
