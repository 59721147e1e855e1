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
    for (const pane of this.panes) pane.drop();
    const shown = this.order.slice(0, this.most);
    this.panes = shown.map((i) => new Pane(this.page, this.page.pictures.get(i), this.role, { small: true }));
    const id = this.page.column.get("id");
    const scored = this.page.column.get(this.page.sort);
    const tiles = this.panes.map((pane, k) => {
      pane.colour({ opacity: 0.85, hidden: new Set() }).move({ scale: 1, x: 0, y: 0 });
      const i = shown[k];
      return el("a", { class: "tile", href: this.linkOf(i), "data-case": i }, pane.node, el("span", { class: "name" }, id.raw[i]), scored && !scored.isText ? el("span", { class: "minor" }, scored.text(i)) : null);
    });
    const button = (words, onclick) => el("button", { type: "button", class: "more", onclick }, words);
    const rest = this.order.length - shown.length;
    const roles = ROLES.slice(1).filter((role) => [...this.page.pictures.values()].some((picture) => picture.maps.some((map) => map.role === role)));
    const pick = roles.length > 1 ? select("layer of the small pictures", roles.map((role) => ({ value: role, label: role })), this.role, (role) => ((this.role = role), this.draw())) : null;
    const empty = this.page.pictures.size ? "None of these cases has a picture." : this.page.noPictures;
    this.place.replaceChildren(
      tiles.length && pick ? el("h3", {}, "pictures of the ", pick) : "",
      el("div", { class: "tiles" }, ...tiles),
      el("p", { class: "minor" }, tiles.length ? null : empty, rest > 0 ? button(`show ${Math.min(rest, MORE)} more of ${plural(this.order.length, "picture")}`, () => ((this.most += MORE), this.draw())) : null),
    );
  }
}
