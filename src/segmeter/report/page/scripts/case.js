// Shows one case: its layers side by side, zoomed and moved in step, and everything known about it.
const STEP = 1.5; // of a zoom
const KEYS = { ArrowLeft: "previous", ArrowRight: "next", "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", 0: "fit" };

class CaseView {
  constructor(page) {
    Object.assign(this, { page, panes: [], shownRoles: new Set(ROLES), order: [], dialog: byId("case"), palette: new Palette(page, view) });
    const names = { roles: ".roles", chips: ".chips", pictures: ".panes", facts: ".case-facts", tools: ".tools" };
    for (const [name, found] of Object.entries(names)) this[name] = this.dialog.querySelector(found);
    const clicks = { previous: () => this.step(-1), next: () => this.step(1), close: () => this.close(), fit: () => this.fit() };
    Object.assign(clicks, { "zoom-in": () => this.zoom(STEP), "zoom-out": () => this.zoom(1 / STEP) });
    for (const [id, act] of Object.entries(clicks)) byId(id).onclick = act;
    const inputs = { plane: () => this.draw(), opacity: ({ value }) => this.colour((view.opacity = Number(value))) };
    for (const name of ["contrast", "gamma"]) inputs[name] = ({ value }) => this.tone((view[name] = 2 ** Number(value)));
    inputs["auto-contrast"] = ({ checked }) => this.tone((view.auto = checked));
    for (const [id, act] of Object.entries(inputs)) byId(id).oninput = (event) => act(event.target);
    this.dialog.onkeydown = (event) => this.key(event);
    this.dialog.oncancel = (event) => (event.preventDefault(), this.close());
    this.pictures.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.pictures.onpointerdown = (event) => this.grab(event);
  }

  // opens the case that the address names, or closes the open one
  follow(state, order) {
    this.order = order;
    const i = state.has("case") ? this.page.column.get("id").raw.indexOf(state.get("case")) : -1;
    if (i >= 0 && this.shown !== i) this.show(i);
    if (i < 0) this.dialog.close();
    else if (!this.dialog.open) this.dialog.showModal();
    this.shown = i;
  }

  close() {
    State.here().with({ case: null }).go();
  }

  step(by) {
    const next = this.order[this.order.indexOf(this.shown) + by];
    State.here().with({ case: this.page.column.get("id").raw[next] }).go({ replace: true });
  }

  show(i) {
    const { page } = this;
    this.shown = i;
    const place = this.order.indexOf(i);
    byId("case-title").textContent = page.column.get("id").raw[i];
    byId("case-place").textContent = place < 0 ? "not among the chosen cases" : `case ${whole(place + 1)} of ${whole(this.order.length)}`;
    byId("previous").disabled = place <= 0;
    byId("next").disabled = place < 0 || place === this.order.length - 1;
    // the planes of a volume in their order, the one that is shown first among them; of a picture, itself
    const picture = page.pictures.get(i);
    this.planes = [picture, ...(picture?.planes ?? [])].sort((one, other) => (one?.slice?.[0] ?? 0) - (other?.slice?.[0] ?? 0));
    byId("plane").parentElement.hidden = this.planes.length < 2;
    Object.assign(byId("plane"), { max: this.planes.length - 1, value: this.planes.indexOf(picture) });
    this.draw();
    this.fit();
  }

  get picture() {
    return this.planes[byId("plane").value];
  }

  // pictures, and the panes that show them
  panesOf() {
    if (!this.picture) return [];
    const roles = ROLES.filter((role) => role === "image" || this.picture.maps.some((map) => map.role === role));
    return roles.map((role) => new Pane(this.palette, this.picture, role));
  }

  draw() {
    this.palette.clear();
    this.panes = this.panesOf(this.shown);
    const drawn = this.panes.length > 0;
    this.pictures.replaceChildren(...(drawn ? this.panes.map((pane) => pane.node) : [el("p", { class: "notes" }, this.page.noPicture)]));
    this.tools.hidden = this.chips.hidden = !drawn;
    this.legend([...new Set(this.panes.map((pane) => pane.picture))].flatMap((picture) => picture.maps));
    this.move();
    this.colour();
    this.tone();
    this.facts.replaceChildren(...this.known(this.shown).filter(Boolean));
  }

  // a chip that hides each class of the maps, the names of their other entries, and a button for each layer
  legend(maps) {
    const entries = maps.flatMap((map) => map.entries ?? map.planes.map((k) => ({ class: k })));
    const classes = [...new Set(entries.map((entry) => entry.class).filter((k) => k !== undefined))].sort((a, b) => a - b);
    const named = new Map(entries.filter((entry) => entry.name && !entry.absent).map(({ name, colour }) => [name, colour]));
    const flip = (set, each, shown) => (shown ? set.add(each) : set.delete(each));
    const chips = classes.map((k) => {
      const words = [swatchOf(rgb(this.page.colours[k])), this.page.classes[k]];
      return toggle(words, !view.hidden.has(k), (shown) => (flip(view.hidden, k, !shown), this.colour()), { class: "chip" });
    });
    this.chips.replaceChildren(...chips, ...[...named].map(([name, colour]) => el("span", { class: "key" }, swatchOf(rgb(colour)), name)));
    const roles = [...new Set(this.panes.map((pane) => pane.role))];
    const hide = () => this.panes.forEach((pane) => (pane.node.hidden = !this.shownRoles.has(pane.role)));
    this.roles.replaceChildren(...roles.map((role) => toggle([role], this.shownRoles.has(role), (shown) => (flip(this.shownRoles, role, shown), hide()))));
    hide();
  }

  colour(opacity = view.opacity) {
    this.palette.colour({ opacity, hidden: view.hidden });
  }

  tone() {
    for (const part of byId("gamma-curve").firstElementChild.children) part.setAttribute("exponent", 1 / view.gamma);
    for (const pane of this.panes) pane.tone(view);
    if (this.panes.length) byId("auto-contrast").checked = view.auto ?? isDim(this.panes[0].picture);
  }

  move() {
    for (const axis of ["x", "y"]) view[axis] = Math.min(0, Math.max(1 - view.scale, view[axis]));
    for (const pane of this.panes) pane.move(view);
  }

  fit() {
    Object.assign(view, { scale: 1, x: 0, y: 0 });
    this.move();
  }

  // about a place given as shares of the panel
  zoom(factor, [left, top] = [0.5, 0.5]) {
    const most = Math.max(40, (this.panes[0]?.picture.size[1] ?? 0) / 50);
    const scale = Math.min(most, Math.max(1, view.scale * factor));
    const by = scale / view.scale;
    Object.assign(view, { scale, x: left - (left - view.x) * by, y: top - (top - view.y) * by });
    this.move();
  }

  wheel(event) {
    const box = event.target.closest(".stage")?.getBoundingClientRect();
    if (!box) return;
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]);
  }

  grab(event) {
    const stage = event.target.closest(".stage");
    if (!stage || view.scale === 1) return;
    const box = stage.getBoundingClientRect();
    const [x, y] = [view.x - event.clientX / box.width, view.y - event.clientY / box.height];
    stage.setPointerCapture(event.pointerId);
    stage.onpointermove = (moved) => (Object.assign(view, { x: x + moved.clientX / box.width, y: y + moved.clientY / box.height }), this.move());
    stage.onlostpointercapture = () => (stage.onpointermove = null);
  }

  key(event) {
    if (event.target.type === "range" || event.ctrlKey || event.metaKey || event.altKey) return;
    const button = byId(KEYS[event.key]) ?? this.roles.children[event.key - 1];
    if (!button && event.key !== "h") return;
    event.preventDefault();
    button?.click();
    if (event.key !== "h") return;
    this.colour(0);
    this.dialog.addEventListener("keyup", () => this.colour(), { once: true });
  }

  // all columns of a case: those of classes as a table, the others by their groups
  known(i) {
    const { columns, classes } = this.page;
    const [groups, rows, kinds] = [new Map(), new Map(), new Map()];
    const at = (map, key) => map.get(key) ?? map.set(key, new Map()).get(key);
    for (const column of columns) {
      if (column.of !== null) {
        kinds.set(column.short, column.isText ? "" : "n");
        at(rows, column.of).set(column.short, column.text(i));
      } else if (column.key !== "id" && column.text(i) !== "") {
        // a measure's group is its name, and the rest of its label the region
        const [heading, term] = column.key.startsWith("measure/") ? [column.label.slice(column.group.length + 2), column.short] : [column.group, column.title];
        at(groups, heading).set(term, column.text(i));
      }
    }
    const facts = [...groups].map(([group, members]) => el("div", { class: "known" }, el("h3", {}, group), el("dl", {}, ...[...members].flatMap(([term, text]) => [el("dt", {}, term), el("dd", {}, text)]))));
    const present = [...rows].filter(([, texts]) => texts.get("status") !== "absent").sort(([one], [other]) => one - other);
    const cells = present.map(([k, texts]) => [classes[k], ...[...kinds.keys()].map((kind) => texts.get(kind) ?? "")]);
    return [this.about(), ...facts, rows.size ? tableOf("scores by class", ["class", ...kinds.keys()], ["", ...kinds.values()], cells) : null];
  }

  // what the picture is of: its size beside the case's, the slice of a volume, the files
  about() {
    const { picture } = this;
    if (!picture) return null;
    const [size, shown] = [picture.size, picture.shown].map((shape) => shape.join(" × "));
    const real = picture.tiles?.length ? `; zooming in shows its own pixels in ${plural(picture.tiles.length, "tile")}, where most is wrong` : "";
    const parts = [size === shown ? `${size} pixels` : `${size} pixels, reduced to ${shown}${real}`];
    const first = picture === this.page.pictures.get(this.shown);
    const most = picture.maps.some((map) => map.role === "errors") ? "wrong" : "object";
    if (picture.slice) parts.unshift(`slice ${picture.slice.join(" of ")}${first ? `, the one with the most ${most} pixels` : ""}`);
    for (const [role, names] of Object.entries(picture.names ?? {})) if (names.length) parts.push(`${role}: ${names.join(", ")}`);
    return el("p", { class: "minor about" }, parts.join(" · "));
  }
}
