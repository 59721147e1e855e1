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

// one panel: the image, and over it the maps of a role; tiles of the case's own pixels join them where the reader zooms in
class Pane {
  constructor(page, picture, role, { title = role, small = false } = {}) {
    Object.assign(this, { page, picture, role, small, choice: view, moved: view, filters: new Map(), tiles: [...(picture.tiles ?? [])] });
    this.toneFilter = toneFilter(`tone${filterCount++}`);
    byId("filters").append(this.toneFilter);
    const [height, width] = picture.size.map((side) => `${side}px`); // so that no place of a tile is rounded
    this.world = el("div", { class: "world", style: { width, height } }, ...this.images(picture));
    this.tone({ contrast: 1, gamma: 1, auto: null });
    this.columns = picture.shown[1];
    this.stage = el("div", { class: "stage", style: { aspectRatio: `${picture.size[1]} / ${picture.size[0]}` } }, this.world);
    new ResizeObserver(() => this.move(this.moved)).observe(this.stage);
    this.node = el("figure", { class: `pane ${role}` }, small ? null : el("figcaption", {}, title), this.stage);
  }

  images(source) {
    const image = (kind, file, more) => el("img", { class: kind, src: sourceOf(this.page, source, file), alt: "", draggable: "false", ...more });
    const maps = source.maps.filter((map) => map.role === this.role).flatMap((map) => {
      const files = map.small && this.small ? [map.small] : [map.file, map.small].filter(Boolean);
      const style = { filter: `url(#${this.filterOf(map).id})` };
      return files.map((file) => image(file === map.small ? "map reduced" : "map", file, { style }));
    });
    return [image(`base ${this.role}`, "image.webp", { alt: `${this.role} of the case`, loading: this.small ? "lazy" : undefined }), ...maps];
  }

  // maps with the same entries share a filter
  filterOf(map) {
    const key = JSON.stringify(map.planes ?? map.entries);
    if (!this.filters.has(key)) {
      this.filters.set(key, { map, filter: colourFilter(`colours${filterCount++}`) });
      byId("filters").append(this.filters.get(key).filter);
    }
    return this.filters.get(key).filter;
  }

  colour(choice) {
    this.choice = choice;
    for (const { map, filter } of this.filters.values()) {
      const found = tables(entriesOf(map, this.page, choice));
      for (const part of filter.querySelectorAll("[data-channel]")) part.setAttribute("tableValues", found[part.dataset.channel]);
    }
    return this;
  }

  // auto stretches the image between its percentiles; null does so for dim images
  tone(choice) {
    this.toned = choice;
    const { contrast, gamma, auto } = choice;
    const [low, high] = auto ?? isDim(this.picture) ? this.picture.range : [0, 255];
    const slope = (255 * contrast) / (high - low);
    for (const part of this.toneFilter.firstChild.children) fill(part, { slope, intercept: (-low / 255) * slope }, []);
    for (const part of this.toneFilter.lastChild.children) part.setAttribute("exponent", 1 / gamma);
    const under = { image: "", errors: "grayscale(1) brightness(.45)" }[this.role] ?? "grayscale(1)";
    const filter = slope === 1 && gamma === 1 ? under : `url(#${this.toneFilter.id}) ${under}`;
    for (const base of this.world.querySelectorAll(".base")) base.style.filter = filter;
  }

  move(moved) {
    this.moved = { ...moved };
    const { scale, x, y } = moved;
    const [width, real] = [scale * this.stage.clientWidth, this.picture.size[1]];
    this.world.style.transform = `translate(${x * this.stage.clientWidth}px, ${y * this.stage.clientHeight}px) scale(${width / real})`;
    // one pixel of a map on several of the screen, else its reduced form, in which no thin structure breaks
    const whole = width >= this.columns;
    this.stage.classList.toggle("whole", whole);
    this.stage.classList.toggle("sharp", width > 2 * (this.picture.tiles?.length ? real : this.columns));
    if (whole && this.tiles.length) this.addTiles([-x / scale, -y / scale], 1 / scale);
  }

  // the tiles in the part of the picture that is seen: its corner and its side as shares of the whole
  addTiles([left, top], side) {
    const [rows, columns] = this.picture.size;
    const seen = (tile) => {
      const [y, x] = [tile.at[0] / rows, tile.at[1] / columns];
      return x < left + side && y < top + side && x + tile.shown[1] / columns > left && y + tile.shown[0] / rows > top;
    };
    const style = ({ at, shown }) => Object.fromEntries(["top", "left", "height", "width"].map((name, k) => [name, `${[...at, ...shown][k]}px`]));
    const found = this.tiles.filter(seen);
    if (!found.length) return;
    this.world.append(...found.map((tile) => el("div", { class: "tile-of", style: style(tile) }, ...this.images(tile))));
    this.tiles = this.tiles.filter((tile) => !found.includes(tile));
    this.colour(this.choice).tone(this.toned);
  }

  drop() {
    for (const filter of [this.toneFilter, ...[...this.filters.values()].map((each) => each.filter)]) filter.remove();
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
