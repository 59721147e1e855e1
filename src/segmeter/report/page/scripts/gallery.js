// Small pictures of the chosen cases, in their order.
const FEW = 6;
const MORE = 48;

class Gallery {
  constructor(place, page) {
    Object.assign(this, { place, page, most: FEW, palette: new Palette(page, { ...PLAIN, opacity: 0.85, hidden: new Set() }) });
    this.role = page.kind === "prediction" ? "prediction" : "errors";
  }

  show({ order } = this) {
    const { pictures, column, sort, ids, noPictures } = this.page;
    this.order = order.filter((i) => pictures.has(i));
    const score = column.get(sort);
    this.palette.clear();
    const tiles = this.order.slice(0, this.most).map((i) => {
      const { node } = new Pane(this.palette, pictures.get(i), this.role, { small: true });
      const value = score && !score.isText ? el("span", { class: "minor" }, score.text(i)) : null;
      return el("a", { class: "tile", href: withCase(this.page, i).link, "data-case": i }, node, el("span", { class: "name" }, ids[i]), value);
    });
    const drawn = new Set([...pictures.values()].flatMap(({ maps }) => maps.map(({ role }) => role)));
    const roles = ROLES.filter((role) => drawn.has(role)).map((role) => ({ value: role, label: role }));
    const [head, pick, place, empty, more] = this.place.querySelectorAll("h3, h3 span, .tiles, p span, .more");
    pick.replaceChildren(select("layer of the small pictures", roles, this.role, (role) => ((this.role = role), this.show())));
    head.hidden = !tiles.length || roles.length < 2;
    place.replaceChildren(...tiles);
    empty.textContent = tiles.length ? "" : pictures.size ? "None of these cases has a picture." : noPictures;
    const rest = this.order.length - tiles.length;
    Object.assign(more, { hidden: rest <= 0, onclick: () => ((this.most += MORE), this.show()) });
    more.textContent = `show ${Math.min(rest, MORE)} more of ${plural(this.order.length, "picture")}`;
  }
}
