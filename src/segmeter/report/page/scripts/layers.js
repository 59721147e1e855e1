// Index maps as grey pictures, coloured by SVG filters: a toggle or another opacity costs no further picture. A canvas
// could not colour pictures beside the page, as no script may read their pixels.
const ROLES = ["image", "target", "prediction", "errors"];
const NO_TINT = "0,0,0";
const DIM = 100; // an image whose upper percentile is below this is stretched until the reader says otherwise
const UNDER = { image: "", errors: "grayscale(1) brightness(.45)" }; // what else lies over the image

const view = { opacity: 0.6, hidden: new Set(), scale: 1, x: 0, y: 0, contrast: 1, gamma: 1, auto: null };
const isDim = (picture) => (picture.range ?? [0, 255])[1] < DIM;
let filterCount = 0;

function filterLike(id) {
  const filter = byId(id).cloneNode(true);
  filter.id = `${id}${filterCount++}`;
  byId("filters").append(filter);
  return filter;
}

// a map's entries as colours and opacities under what the reader chose
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
    if (entry.class !== undefined) return { colour: colour(entry.class), alpha: hidden.has(entry.class) || plain(entry.class) ? 0 : opacity };
    return { colour: entry.colour, alpha: entry.strong ? Math.min(1, 1.6 * opacity) : opacity * (entry.faint ? 0.5 : 1) };
  });
}

// the channels of the colours and the opacities by grey value: entry i of n has the value i * spread
function tablesOf(entries) {
  const spread = Math.floor(255 / Math.max(1, entries.length - 1));
  const of = (value) => entries[Math.min(entries.length - 1, Math.round(value / spread))];
  const table = (find) => Array.from({ length: 256 }, (_, value) => find(of(value))).join(" ");
  return [...[0, 1, 2].map((k) => table(({ colour }) => (colour[k] / 255).toFixed(3))), table(({ alpha }) => alpha.toFixed(2))];
}

function sourceOf(page, picture, file) {
  const content = picture.files[file];
  return content === undefined || page.linked ? content : `data:image/${file.split(".").at(-1)};base64,${content}`;
}

// one panel: the image, and over it the maps of a role; tiles of the case's own pixels join them where the reader zooms in
class Pane {
  constructor(page, picture, role, { title = role, small = false } = {}) {
    Object.assign(this, { page, picture, role, small, choice: view, toned: { contrast: 1, gamma: 1, auto: null }, moved: view });
    Object.assign(this, { filters: new Map(), tiles: [...(picture.tiles ?? [])], toneFilter: filterLike("tone") });
    const [height, width] = picture.size.map((side) => `${side}px`); // so that no place of a tile is rounded
    this.world = el("div", { class: "world", style: { width, height } }, ...this.images(picture));
    this.stage = el("div", { class: "stage", style: { "aspect-ratio": `${picture.size[1]} / ${picture.size[0]}` } }, this.world);
    new ResizeObserver(() => this.move(this.moved)).observe(this.stage);
    this.node = el("figure", { class: `pane ${role}` }, small ? null : el("figcaption", {}, title), this.stage);
    this.tone(this.toned);
  }

  images(source) {
    const image = (kind, file, more) => el("img", { class: kind, src: sourceOf(this.page, source, file), alt: "", draggable: "false", ...more });
    const maps = source.maps.filter((map) => map.role === this.role).flatMap((map) => {
      const style = { filter: `url(#${this.filterOf(map).id})` };
      const files = map.small && this.small ? [map.small] : [map.file, map.small].filter(Boolean);
      return files.map((file) => image(file === map.small ? "map reduced" : "map", file, { style }));
    });
    return [image(`base ${this.role}`, "image.webp", { alt: `${this.role} of the case`, loading: this.small ? "lazy" : undefined }), ...maps];
  }

  // maps with the same entries share a filter
  filterOf(map) {
    const key = JSON.stringify(map.planes ?? map.entries);
    if (!this.filters.has(key)) this.filters.set(key, { map, filter: filterLike("colours") });
    return this.filters.get(key).filter;
  }

  colour(choice) {
    this.choice = choice;
    for (const { map, filter } of this.filters.values()) {
      const tables = tablesOf(entriesOf(map, this.page, choice));
      filter.querySelectorAll("[type=discrete]").forEach((part, channel) => part.setAttribute("tableValues", tables[channel]));
    }
    return this;
  }

  // auto stretches the image between its percentiles; null does so for dim images
  tone(choice) {
    this.toned = choice;
    const { contrast, gamma, auto } = choice;
    const [low, high] = auto ?? isDim(this.picture) ? this.picture.range : [0, 255];
    const slope = (255 * contrast) / (high - low);
    const [stretch, bend] = this.toneFilter.children;
    for (const part of stretch.children) part.setAttribute("slope", slope), part.setAttribute("intercept", (-low / 255) * slope);
    for (const part of bend.children) part.setAttribute("exponent", 1 / gamma);
    const under = UNDER[this.role] ?? "grayscale(1)";
    const filter = slope === 1 && gamma === 1 ? under : `url(#${this.toneFilter.id}) ${under}`;
    for (const base of this.world.querySelectorAll(".base")) base.style.filter = filter;
  }

  move(moved) {
    this.moved = { ...moved };
    const { scale, x, y } = moved;
    const [width, real, shown] = [scale * this.stage.clientWidth, this.picture.size[1], this.picture.shown[1]];
    this.world.style.transform = `translate(${x * this.stage.clientWidth}px, ${y * this.stage.clientHeight}px) scale(${width / real})`;
    // one pixel of a map on several of the screen, else its reduced form, in which no thin structure breaks
    this.stage.classList.toggle("whole", width >= shown);
    this.stage.classList.toggle("sharp", width > 2 * (this.picture.tiles?.length ? real : shown));
    if (width >= shown && this.tiles.length) this.addTiles([-x / scale, -y / scale], 1 / scale);
  }

  // the tiles in the part of the picture that is seen: its corner and its side as shares of the whole
  addTiles([left, top], side) {
    const [rows, columns] = this.picture.size;
    const seen = ({ at, shown }) => {
      const [y, x] = [at[0] / rows, at[1] / columns];
      return x < left + side && y < top + side && x + shown[1] / columns > left && y + shown[0] / rows > top;
    };
    const found = this.tiles.filter(seen);
    if (!found.length) return;
    const style = ({ at, shown }) => ({ top: `${at[0]}px`, left: `${at[1]}px`, height: `${shown[0]}px`, width: `${shown[1]}px` });
    this.world.append(...found.map((tile) => el("div", { class: "tile-of", style: style(tile) }, ...this.images(tile))));
    this.tiles = this.tiles.filter((tile) => !found.includes(tile));
    this.colour(this.choice).tone(this.toned);
  }

  drop() {
    for (const filter of [this.toneFilter, ...[...this.filters.values()].map((each) => each.filter)]) filter.remove();
  }
}

// pictures by the number of their case
function picturesOf(page, pictures) {
  const place = new Map(page.column.get("id").raw.map((id, i) => [id, i]));
  return new Map(Object.entries(pictures).map(([id, picture]) => [place.get(id), picture]));
}
