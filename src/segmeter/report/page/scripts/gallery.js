// Small pictures of the chosen cases, in their order.
const FEW = 6;
const MORE = 48;

class Gallery {
  constructor(place, page, linkOf) {
    Object.assign(this, { place, page, linkOf, panes: [], most: FEW });
    this.role = page.kind === "prediction" ? "prediction" : "errors";
  }

  show(state, cases, { order }) {
    this.order = order.filter((i) => this.page.pictures.has(i));
    this.draw();
  }

  draw() {
    const { pictures, column, sort } = this.page;
    for (const pane of this.panes) pane.drop();
    this.panes = [];
    const tiles = this.order.slice(0, this.most).map((i) => {
      const pane = new Pane(this.page, pictures.get(i), this.role, { small: true });
      this.panes.push(pane);
      pane.colour({ opacity: 0.85, hidden: new Set() }).move({ scale: 1, x: 0, y: 0 });
      const score = column.get(sort)?.isText === false ? el("span", { class: "minor" }, column.get(sort).text(i)) : null;
      return el("a", { class: "tile", href: this.linkOf(i), "data-case": i }, pane.node, el("span", { class: "name" }, column.get("id").raw[i]), score);
    });
    const maps = [...pictures.values()].flatMap((picture) => picture.maps);
    const roles = ROLES.slice(1).filter((role) => maps.some((map) => map.role === role)).map((role) => ({ value: role, label: role }));
    const pick = select("layer of the small pictures", roles, this.role, (role) => ((this.role = role), this.draw()));
    const rest = this.order.length - tiles.length;
    const more = el("button", { type: "button", class: "more", onclick: () => ((this.most += MORE), this.draw()) }, `show ${Math.min(rest, MORE)} more of ${plural(this.order.length, "picture")}`);
    const empty = pictures.size ? "None of these cases has a picture." : this.page.noPictures;
    const head = tiles.length && roles.length > 1 ? el("h3", {}, "pictures of the ", pick) : "";
    this.place.replaceChildren(head, el("div", { class: "tiles" }, ...tiles), el("p", { class: "minor" }, tiles.length ? null : empty, rest > 0 ? more : null));
  }
}
