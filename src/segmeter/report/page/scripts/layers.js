// Indexed maps as grey pictures, coloured by filters: a toggle or another opacity costs no further picture, and
// pictures beside the page, whose pixels no script may read, are coloured like those inside it.
const ROLES = ["image", "target", "prediction", "errors"];
const NO_TINT = "0,0,0";

const DIM = 100; // an image whose upper percentile is below this is stretched until the reader says otherwise

const view = { opacity: 0.6, hidden: new Set(), scale: 1, x: 0, y: 0, contrast: 1, gamma: 1, auto: null };
let filterCount = 0;

// entry i of n has the value i * spread
function tables(entries) {
  const spread = Math.floor(255 / Math.max(1, entries.length - 1));
  const places = Array.from({ length: 256 }, (_, value) => entries[Math.min(entries.length - 1, Math.round(value / spread))]);
  return [0, 1, 2].map((k) => places.map((entry) => (entry.colour[k] / 255).toFixed(3)).join(" ")).concat(places.map((entry) => entry.alpha.toFixed(2)).join(" "));
}

function colourFilter(id) {
  const part = (name, channel) => svg(`feFunc${name}`, { type: "discrete", "data-channel": channel });
  return svg(
    "filter",
    { id, x: "0", y: "0", width: "100%", height: "100%", "color-interpolation-filters": "sRGB" },
    svg("feComponentTransfer", { in: "SourceGraphic", result: "colours" }, part("R", 0), part("G", 1), part("B", 2)),
    svg("feColorMatrix", { in: "SourceGraphic", type: "matrix", values: "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0", result: "values" }),
    svg("feComponentTransfer", { in: "values", result: "shares" }, part("A", 3)),
    svg("feComposite", { in: "colours", in2: "shares", operator: "in" }),
  );
}

// stretches an image linearly, then bends it
function toneFilter(id) {
  const parts = (type) => ["R", "G", "B"].map((name) => svg(`feFunc${name}`, { type }));
  const steps = ["linear", "gamma"].map((type) => svg("feComponentTransfer", {}, ...parts(type)));
  return svg("filter", { id, x: "0", y: "0", width: "100%", height: "100%", "color-interpolation-filters": "sRGB" }, ...steps);
}

const isDim = (picture) => (picture.range ?? [0, 255])[1] < DIM;

// the entries of a map as colours and opacities under what the reader chose
function entriesOf(map, page, { opacity, hidden }) {
  const colour = (k) => page.colours[k];
  const plain = (k) => colour(k).join() === NO_TINT || (k === 0 && page.task === "binary");
  if (map.planes) {
    return Array.from({ length: 2 ** map.planes.length }, (_, bits) => {
      const on = map.planes.filter((k, bit) => (bits >> bit) & 1 && !hidden.has(k));
      const mixed = [0, 1, 2].map((channel) => on.reduce((sum, k) => sum + colour(k)[channel], 0) / Math.max(1, on.length));
      return { colour: mixed, alpha: on.length ? opacity : 0 };
    });
  }
  return map.entries.map((entry) => {
    if (entry.hidden) return { colour: [0, 0, 0], alpha: 0 };
    if (entry.class === undefined) return { colour: entry.colour, alpha: entry.strong ? Math.min(1, 1.6 * opacity) : opacity * (entry.faint ? 0.5 : 1) };
    return { colour: colour(entry.class), alpha: hidden.has(entry.class) || plain(entry.class) ? 0 : opacity };
  });
}

const sourceOf = (page, picture, file) => {
  const content = picture.files[file];
  if (content === undefined || page.linked) return content;
  return `data:image/${file.endsWith(".webp") ? "webp" : "png"};base64,${content}`;
};

// one panel: the image, and over it the maps of a role
class Pane {
  constructor(page, picture, role, { title = role, source = picture, small = false } = {}) {
    Object.assign(this, { page, role, filters: [] });
    this.maps = source.maps.filter((map) => map.role === role);
    this.picture = picture;
    this.toneFilter = toneFilter(`tone${filterCount++}`);
    byId("filters").append(this.toneFilter);
    const base = el("img", { class: `base ${role}`, src: sourceOf(page, picture, "image.webp"), alt: `${role} of the case`, draggable: "false", loading: small ? "lazy" : undefined });
    this.base = base;
    this.tone({ contrast: 1, gamma: 1, auto: null });
    const layers = this.maps.map((map) => {
      const id = `colours${filterCount++}`;
      const filter = colourFilter(id);
      this.filters.push(filter);
      byId("filters").append(filter);
      const shown = map.small && small ? [map.small] : [map.file, map.small].filter(Boolean);
      return shown.map((file) => el("img", { class: file === map.small ? "map reduced" : "map", src: sourceOf(page, source, file), alt: "", draggable: "false", style: { filter: `url(#${id})` } }));
    });
    this.world = el("div", { class: "world" }, base, ...layers.flat());
    const [rows, columns] = picture.shown;
    this.columns = columns;
    this.stage = el("div", { class: "stage", style: { aspectRatio: `${columns} / ${rows}` } }, this.world);
    this.node = el("figure", { class: `pane ${role}` }, small ? null : el("figcaption", {}, title), this.stage);
  }

  colour(choice) {
    this.maps.forEach((map, k) => {
      const found = tables(entriesOf(map, this.page, choice));
      for (const part of this.filters[k].querySelectorAll("[data-channel]")) part.setAttribute("tableValues", found[part.dataset.channel]);
    });
    return this;
  }

  // auto stretches the image between its percentiles; null does so for dim images
  tone({ contrast, gamma, auto }) {
    const [low, high] = auto ?? isDim(this.picture) ? this.picture.range : [0, 255];
    const slope = (255 * contrast) / (high - low);
    for (const part of this.toneFilter.firstChild.children) fill(part, { slope, intercept: (-low / 255) * slope }, []);
    for (const part of this.toneFilter.lastChild.children) part.setAttribute("exponent", 1 / gamma);
    const under = { image: "", errors: "grayscale(1) brightness(.45)" }[this.role] ?? "grayscale(1)";
    this.base.style.filter = slope === 1 && gamma === 1 ? under : `url(#${this.toneFilter.id}) ${under}`;
  }

  move({ scale, x, y }) {
    this.world.style.transform = `translate(${100 * x}%, ${100 * y}%) scale(${scale})`;
    // one pixel of a map on several of the screen, else its reduced form, in which no thin structure breaks
    this.stage.classList.toggle("whole", scale * (this.stage.clientWidth || 200) >= this.columns);
    this.stage.classList.toggle("sharp", scale * (this.stage.clientWidth || 200) > 2 * this.columns);
  }

  drop() {
    for (const filter of [this.toneFilter, ...this.filters]) filter.remove();
  }
}

// classes that a picture shows in any of its maps, and its other entries by name
function legendOf(pictures) {
  const classes = new Set();
  const others = new Map();
  for (const map of pictures.flatMap((picture) => picture.maps)) {
    for (const k of map.planes ?? []) classes.add(k);
    for (const entry of map.entries ?? []) {
      if (entry.class !== undefined) classes.add(entry.class);
      else if (!entry.hidden && map.role !== "errors") others.set(entry.name, entry.colour);
    }
  }
  return { classes: [...classes].sort((a, b) => a - b), others };
}

// pictures by the number of their case
function picturesOf(page, pictures) {
  const place = new Map(page.column.get("id").raw.map((id, i) => [id, i]));
  return new Map(Object.entries(pictures).map(([id, picture]) => [place.get(id), picture]));
}
