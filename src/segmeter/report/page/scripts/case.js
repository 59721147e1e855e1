// Shows one case: its layers side by side, zoomed and moved in step, and everything known about it.
const STEP = 1.5; // of a zoom
const KEYS = { ArrowLeft: "previous", ArrowRight: "next", "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", 0: "fit" };

class CaseView {
  constructor(page) {
    Object.assign(this, { page, panes: [], hiddenRoles: new Set(), order: [], dialog: byId("case"), palette: new Palette(page, view) });
    [this.tools, this.roles, this.chips, this.pictures, this.facts] = this.dialog.querySelectorAll(".tools, .roles, .chips, .panes, .case-facts");
    const step = (by) => withCase(page, this.order[this.order.indexOf(this.shown) + by]).go({ replace: true });
    const clicks = { previous: () => step(-1), next: () => step(1), close: () => this.dialog.close(), fit: () => this.fit() };
    Object.assign(clicks, { "zoom-in": () => this.zoom(STEP), "zoom-out": () => this.zoom(1 / STEP) });
    for (const [id, act] of Object.entries(clicks)) byId(id).onclick = act;
    const inputs = { plane: () => this.draw(), opacity: ({ value }) => this.palette.colour((view.opacity = Number(value))) };
    for (const name of ["contrast", "gamma"]) inputs[name] = ({ value }) => this.tone((view[name] = 2 ** Number(value)));
    inputs["auto-contrast"] = ({ checked }) => this.tone((view.auto = checked));
    for (const [id, act] of Object.entries(inputs)) byId(id).oninput = (event) => act(event.target);
    this.dialog.onkeydown = (event) => this.key(event);
    this.dialog.onclose = () => this.dialog.open || State.here().with({ case: null }).go();
    this.pictures.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.pictures.onpointerdown = (event) => this.grab(event);
  }

  // opens the case that the address names, or closes the open one
  follow(state, order) {
    this.order = order;
    const i = this.page.place.get(state.get("case")) ?? -1;
    if (i >= 0 && this.shown !== i) this.show(i);
    if (i < 0) this.dialog.close();
    else if (!this.dialog.open) this.dialog.showModal();
    this.shown = i;
  }

  show(i) {
    this.shown = i;
    const place = this.order.indexOf(i);
    byId("case-title").textContent = this.page.ids[i];
    byId("case-place").textContent = place < 0 ? "not among the chosen cases" : `case ${whole(place + 1)} of ${whole(this.order.length)}`;
    byId("previous").disabled = place <= 0;
    byId("next").disabled = place < 0 || place === this.order.length - 1;
    // the planes of a volume in their order, the one that is shown first among them; of a picture, itself
    const picture = this.page.pictures.get(i);
    this.planes = [picture, ...(picture?.planes ?? [])].sort((one, other) => (one?.slice?.[0] ?? 0) - (other?.slice?.[0] ?? 0));
    byId("plane").parentElement.hidden = this.planes.length < 2;
    Object.assign(byId("plane"), { max: this.planes.length - 1, value: this.planes.indexOf(picture) });
    this.draw();
    this.fit();
  }

  // the panes that show a case
  panesOf() {
    const roles = ROLES.filter((role) => role === "image" || this.picture?.maps.some((map) => map.role === role));
    return this.picture ? roles.map((role) => new Pane(this.palette, this.picture, role)) : [];
  }

  draw() {
    this.picture = this.planes[byId("plane").value];
    this.palette.clear();
    this.panes = this.panesOf(this.shown);
    const drawn = this.panes.map((pane) => pane.node);
    this.pictures.replaceChildren(...(drawn.length ? drawn : [el("p", { class: "notes" }, this.page.noPicture)]));
    this.tools.hidden = this.chips.hidden = !drawn.length;
    this.legend([...new Set(this.panes.map((pane) => pane.picture))].flatMap((picture) => picture.maps));
    this.move();
    this.tone();
    this.facts.replaceChildren(...this.known(this.shown).filter(Boolean));
  }

  // a chip that hides each class of the maps, the names of their other entries, and a button for each layer
  legend(maps) {
    const { colours, classes } = this.page;
    const entries = maps.flatMap((map) => map.entries);
    const occurring = [...new Set(entries.map((entry) => entry.class))].filter((k) => k !== undefined).sort((a, b) => a - b);
    const named = new Map(entries.filter((entry) => entry.name && !entry.absent).map(({ name, colour }) => [name, colour]));
    const words = (name, colour) => [swatchOf(`rgb(${colour.join(",")})`), name];
    const choice = (hidden, each, content, act, more) =>
      toggle(content, !hidden.has(each), (shown) => (hidden[shown ? "delete" : "add"](each), act()), more);
    const chips = occurring.map((k) => choice(view.hidden, k, words(classes[k], colours[k]), () => this.palette.colour(), { class: "chip" }));
    this.chips.replaceChildren(...chips, ...[...named].map((entry) => el("span", { class: "key" }, ...words(...entry))));
    const hide = () => this.panes.forEach((pane) => (pane.node.hidden = this.hiddenRoles.has(pane.role)));
    const roles = [...new Set(this.panes.map((pane) => pane.role))];
    this.roles.replaceChildren(...roles.map((role) => choice(this.hiddenRoles, role, [role], hide)));
    hide();
  }

  tone() {
    for (const part of byId("gamma-curve").firstElementChild.children) part.setAttribute("exponent", 1 / view.gamma);
    for (const pane of this.panes) pane.tone();
    if (this.panes.length) byId("auto-contrast").checked = view.auto ?? isDim(this.panes[0].picture);
  }

  move() {
    for (const axis of ["x", "y"]) view[axis] = Math.min(0, Math.max(1 - view.scale, view[axis]));
    for (const pane of this.panes) pane.move();
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
    const { width, height } = stage.getBoundingClientRect();
    const [x, y] = [view.x - event.clientX / width, view.y - event.clientY / height];
    stage.setPointerCapture(event.pointerId);
    stage.onpointermove = ({ clientX, clientY }) => (Object.assign(view, { x: x + clientX / width, y: y + clientY / height }), this.move());
    stage.onlostpointercapture = () => (stage.onpointermove = null);
  }

  key(event) {
    if (event.target.type === "range" || event.ctrlKey || event.metaKey || event.altKey) return;
    const button = byId(KEYS[event.key]) ?? this.roles.children[event.key - 1];
    if (!button && event.key !== "h") return;
    event.preventDefault();
    if (button) return button.click();
    this.palette.colour(0);
    this.dialog.addEventListener("keyup", () => this.palette.colour(), { once: true });
  }

  // all columns of a case: those of classes as a table, the others by their groups
  known(i) {
    const [lists, byClass] = [new Map(), this.page.columns.filter(({ of }) => of !== null)];
    for (const column of this.page.columns) {
      const { key, label, group, of, short, title } = column;
      if (of !== null || key === "id" || column.text(i) === "") continue;
      // a measure's group is its name, and the rest of its label the region
      const [heading, term] = key.startsWith("measure/") ? [label.slice(group.length + 2), short] : [group, title];
      if (!lists.has(heading)) lists.set(heading, el("dl"));
      lists.get(heading).append(el("dt", {}, term), el("dd", {}, column.text(i)));
    }
    const facts = [...lists].map(([heading, list]) => el("div", { class: "known" }, el("h3", {}, heading), list));
    const kinds = new Map(byClass.map(({ short, isText }) => [short, isText ? "" : "n"]));
    const texts = new Map(byClass.map((column) => [`${column.of} ${column.short}`, column.text(i)]));
    const found = [...new Set(byClass.map(({ of }) => of))].filter((k) => texts.get(`${k} status`) !== "absent");
    const rows = found.sort((one, other) => one - other).map((k) => [this.page.classes[k], ...[...kinds.keys()].map((kind) => texts.get(`${k} ${kind}`) ?? "")]);
    return [this.about(), ...facts, byClass.length ? tableOf("scores by class", ["class", ...kinds.keys()], ["", ...kinds.values()], rows) : null];
  }

  // what the picture is of: its size beside the case's, the slice of a volume, the files
  about() {
    if (!this.picture) return null;
    const { slice, tiles = [], maps, names = {} } = this.picture;
    const [size, shown] = [this.picture.size, this.picture.shown].map((shape) => shape.join(" × "));
    const real = tiles.length ? `; zooming in shows its own pixels in ${plural(tiles.length, "tile")}, where most is wrong` : "";
    const most = maps.some((map) => map.role === "errors") ? "wrong" : "object";
    const why = this.picture === this.page.pictures.get(this.shown) ? `, the one with the most ${most} pixels` : "";
    const files = Object.entries(names).filter(([, each]) => each.length).map(([role, each]) => `${role}: ${each.join(", ")}`);
    const parts = [slice ? `slice ${slice.join(" of ")}${why}` : "", `${size} pixels${size === shown ? "" : `, reduced to ${shown}${real}`}`, ...files];
    return el("p", { class: "minor about" }, parts.filter(Boolean).join(" · "));
  }
}
