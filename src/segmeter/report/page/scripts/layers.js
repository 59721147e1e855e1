// Index maps as grey pictures, coloured by SVG filters: a toggle or another opacity costs no further picture. A canvas
// could not colour pictures beside the page, as no script may read their pixels.
const ROLES = ["image", "target", "prediction", "errors"];
const NO_TINT = "0,0,0";
const DIM = 100; // an image whose upper percentile is below this is stretched until the reader says otherwise
const UNDER = { image: "", errors: "grayscale(1) brightness(.45)" }; // what else lies over the image
const PLAIN = { scale: 1, x: 0, y: 0, contrast: 1, gamma: 1, auto: null };
const view = { ...PLAIN, opacity: 0.6, hidden: new Set() }; // of the open case, as the reader chose it
const isDim = (picture) => (picture.range ?? [0, 255])[1] < DIM;
let filterCount = 0;

// a map's entries as colours and opacities under what the reader chose
function entriesOf(map, page, hidden, opacity) {
  const plain = (k) => page.colours[k]?.join() === NO_TINT || (k === 0 && page.task === "binary");
  const share = (entry) => (entry.hidden || hidden.has(entry.class) || plain(entry.class) ? 0 : entry.strong ? 1.6 : entry.faint ? 0.5 : 1);
  const lookOf = (entry) => ({ colour: entry.colour ?? page.colours[entry.class] ?? [0, 0, 0], alpha: Math.min(1, share(entry) * opacity) });
  return map.entries.map(lookOf);
}

// the look of some panes, and their filters; maps with the same entries share one
class Palette {
  constructor(page, look) {
    Object.assign(this, { page, look, filters: new Map() });
  }

  filterOf(map) {
    const key = JSON.stringify(map.entries);
    if (!this.filters.has(key)) {
      const filter = byId("colours").cloneNode(true);
      filter.id = `colours${filterCount++}`;
      byId("filters").append(filter);
      this.filters.set(key, { map, filter });
      this.fill(this.filters.get(key));
    }
    return this.filters.get(key).filter.id;
  }

  // the channels of the colours and the opacities by grey value: entry i of n has the value i * spread
  fill({ map, filter }, opacity = this.look.opacity) {
    const entries = entriesOf(map, this.page, this.look.hidden, opacity);
    const spread = Math.floor(255 / Math.max(1, entries.length - 1));
    const of = (value) => entries[Math.min(entries.length - 1, Math.round(value / spread))];
    const table = (find) => Array.from({ length: 256 }, (_, value) => find(of(value))).join(" ");
    const tables = [...[0, 1, 2].map((k) => table(({ colour }) => (colour[k] / 255).toFixed(3))), table(({ alpha }) => alpha.toFixed(2))];
    filter.querySelectorAll("[type=discrete]").forEach((part, channel) => part.setAttribute("tableValues", tables[channel]));
  }

  colour(opacity) {
    this.filters.forEach((each) => this.fill(each, opacity));
  }

  clear() {
    for (const { filter } of this.filters.values()) filter.remove();
    this.filters.clear();
  }
}

// one panel: the image, and over it the maps of a role; tiles of the case's own pixels join them where the reader zooms in
class Pane {
  constructor(palette, picture, role, { title = role, small = false } = {}) {
    Object.assign(this, { palette, picture, role, small, tiles: [...(picture.tiles ?? [])] });
    const [height, width] = picture.size.map((side) => `${side}px`); // so that no place of a tile is rounded
    this.world = el("div", { class: "world", style: { width, height } }, ...this.images(picture));
    this.stage = el("div", { class: "stage", style: { "aspect-ratio": `${picture.size[1]} / ${picture.size[0]}` } }, this.world);
    new ResizeObserver(() => this.move()).observe(this.stage);
    this.node = el("figure", { class: `pane ${role}` }, small ? null : el("figcaption", {}, title), this.stage);
    this.tone();
  }

  images(source) {
    const begin = (file) => (this.palette.page.linked ? "" : `data:image/${file.split(".").at(-1)};base64,`);
    const srcOf = (file) => (file in source.files ? begin(file) + source.files[file] : undefined);
    const image = (kind, file, more) => el("img", { class: kind, src: srcOf(file), alt: "", draggable: "false", ...more });
    const maps = source.maps.filter((map) => map.role === this.role).flatMap((map) => {
      const style = { filter: `url(#${this.palette.filterOf(map)})` };
      const files = map.small && this.small ? [map.small] : [map.file, map.small].filter(Boolean);
      return files.map((file) => image(file === map.small ? "map reduced" : "map", file, { style }));
    });
    return [image(`base ${this.role}`, "image.webp", { alt: `${this.role} of the case`, loading: this.small ? "lazy" : undefined }), ...maps];
  }

  // auto stretches the image between its percentiles; null does so for dim images
  tone() {
    const { contrast, gamma, auto } = this.palette.look;
    const [low, high] = auto ?? isDim(this.picture) ? this.picture.range : [0, 255];
    const slope = (255 * contrast) / (high - low);
    const steepness = 1 + (2 * low * slope) / 255; // v -> slope * v - low * slope / 255, with no value cut that is seen
    const bend = gamma === 1 ? "" : "url(#gamma-curve)";
    const filter = `brightness(${slope / steepness}) contrast(${steepness}) ${bend} ${UNDER[this.role] ?? "grayscale(1)"}`;
    for (const base of this.world.querySelectorAll(".base")) base.style.filter = filter;
  }

  move() {
    const { scale, x, y } = this.palette.look;
    const [width, real, shown] = [scale * this.stage.clientWidth, this.picture.size[1], this.picture.shown[1]];
    this.world.style.transform = `translate(${x * this.stage.clientWidth}px, ${y * this.stage.clientHeight}px) scale(${width / real})`;
    // one pixel of a map on several of the screen, else its reduced form, in which no thin structure breaks
    this.stage.classList.toggle("whole", width >= shown);
    this.stage.classList.toggle("sharp", width > 2 * (this.picture.tiles?.length ? real : shown));
    if (width < shown || !this.tiles.length) return;
    // the tiles in the part of the picture that is seen: its corner and its side as shares of the whole
    const [corner, side] = [[-y / scale, -x / scale], 1 / scale];
    const seen = ({ at, shown }) => [0, 1].every((k) => {
      const [first, last] = [at[k], at[k] + shown[k]].map((place) => place / this.picture.size[k]);
      return first < corner[k] + side && last > corner[k];
    });
    const found = this.tiles.filter(seen);
    const style = ({ at, shown }) => ({ top: `${at[0]}px`, left: `${at[1]}px`, height: `${shown[0]}px`, width: `${shown[1]}px` });
    this.world.append(...found.map((tile) => el("div", { class: "tile-of", style: style(tile) }, ...this.images(tile))));
    this.tiles = this.tiles.filter((tile) => !found.includes(tile));
    if (found.length) this.tone();
  }
}

// pictures by the number of their case
const picturesOf = (page, pictures) => new Map(Object.entries(pictures).map(([id, picture]) => [page.place.get(id), picture]));
