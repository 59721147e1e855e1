// One case: its layers side by side, zoomed and moved in step, and all that is known of it.
const STEP = 1.5; // of a zoom

class CaseView {
  constructor(page) {
    Object.assign(this, { page, panes: [], shownRoles: new Set(ROLES), order: [] });
    this.title = el("h2", { id: "case-title" });
    this.place = el("p", { class: "minor", id: "case-place" });
    const button = (id, words, label, onclick) => el("button", { type: "button", id, "aria-label": label, title: label, onclick }, words);
    this.previous = button("previous", "←", "previous case", () => this.step(-1));
    this.next = button("next", "→", "next case", () => this.step(1));
    this.opacity = el("input", { type: "range", id: "opacity", min: 0, max: 1, step: 0.05, value: view.opacity, "aria-label": "opacity of the layers" });
    this.opacity.addEventListener("input", () => ((view.opacity = Number(this.opacity.value)), this.colour()));
    this.tones = ["contrast", "gamma"].map((name) => this.slider(name));
    this.auto = el("input", { type: "checkbox", id: "auto-contrast" });
    this.auto.addEventListener("change", () => ((view.auto = this.auto.checked), this.tone()));
    this.plane = el("input", { type: "range", id: "plane", min: 0, step: 1, "aria-label": "plane of the volume" });
    this.plane.addEventListener("input", () => this.draw());
    this.planeLabel = el("label", {}, "plane ", this.plane);
    const zoom = [button("zoom-out", "−", "zoom out", () => this.zoom(1 / STEP)), button("zoom-in", "+", "zoom in", () => this.zoom(STEP)), button("fit", "fit", "whole picture", () => this.fit())];
    this.roles = el("span", { class: "roles", role: "group", "aria-label": "layers" });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "classes" });
    this.pictures = el("div", { class: "panes" });
    this.facts = el("div", { class: "case-facts" });
    const head = el("div", { class: "case-head" }, el("div", {}, this.title, this.place), el("div", { class: "moves" }, this.previous, this.next, button("close", "×", "close", () => this.close())));
    this.tools = el("div", { class: "tools" }, this.roles, this.planeLabel, el("label", {}, "opacity ", this.opacity), ...this.tones, el("label", {}, this.auto, "auto contrast"), ...zoom);
    this.dialog = el("dialog", { id: "case", "aria-labelledby": "case-title" }, head, this.tools, this.chips, this.pictures, this.facts);
    document.body.append(this.dialog);
    this.dialog.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("cancel", (event) => (event.preventDefault(), this.close()));
    this.pictures.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.pictures.addEventListener("pointerdown", (event) => this.grab(event));
  }

  // of the image: from an eighth to eight times, in even steps of its logarithm
  slider(name) {
    const input = el("input", { type: "range", id: name, min: -3, max: 3, step: 0.1, value: 0, "aria-label": `${name} of the image` });
    input.addEventListener("input", () => ((view[name] = 2 ** Number(input.value)), this.tone()));
    return el("label", {}, `${name} `, input);
  }

  tone() {
    for (const pane of this.panes) pane.tone(view);
    const [first] = this.panes;
    if (first) this.auto.checked = view.auto ?? isDim(first.picture);
  }

  // which case the address names; opened or closed as it says
  follow(state, order) {
    this.order = order;
    const id = state.get("case");
    const i = id === null ? -1 : this.page.column.get("id").raw.indexOf(id);
    if (i < 0) {
      this.shown = undefined;
      if (this.dialog.open) this.dialog.close();
      return;
    }
    if (this.shown !== i) this.show(i);
    if (!this.dialog.open) this.dialog.showModal();
  }

  close() {
    State.here().with({ case: null }).go();
  }

  step(by) {
    const place = this.order.indexOf(this.shown) + by;
    if (place < 0 || place >= this.order.length) return;
    State.here().with({ case: this.page.column.get("id").raw[this.order[place]] }).go({ replace: true });
  }

  show(i) {
    const { page } = this;
    this.shown = i;
    const place = this.order.indexOf(i);
    this.title.textContent = page.column.get("id").raw[i];
    this.place.textContent = place < 0 ? "not among the chosen cases" : `case ${whole(place + 1)} of ${whole(this.order.length)}`;
    this.previous.disabled = place <= 0;
    this.next.disabled = place < 0 || place === this.order.length - 1;
    const planes = (this.planes = this.planesOf(i));
    this.planeLabel.hidden = planes.length < 2;
    Object.assign(this.plane, { max: planes.length - 1, value: planes.indexOf(page.pictures?.get(i)) });
    this.draw();
    this.fit();
  }

  // the planes of a volume in their order, the one that is shown first among them; of a picture, itself
  planesOf(i) {
    const picture = this.page.pictures?.get(i);
    return [picture, ...(picture?.planes ?? [])].sort((one, other) => (one?.slice?.[0] ?? 0) - (other?.slice?.[0] ?? 0));
  }

  draw() {
    const { page, shown: i } = this;
    for (const pane of this.panes) pane.drop();
    this.panes = this.panesOf(i);
    this.pictures.replaceChildren(...this.panes.map((pane) => pane.node));
    const picture = this.panes.length > 0;
    if (!picture) this.pictures.append(el("p", { class: "notes" }, page.noPicture));
    this.tools.hidden = this.chips.hidden = !picture;
    if (picture) this.legend(this.sources(i));
    this.toggle();
    this.move();
    this.colour();
    this.tone();
    this.facts.replaceChildren(...this.known(i));
  }

  sources() {
    return [this.planes[this.plane.value]];
  }

  panesOf() {
    const picture = this.planes[this.plane.value];
    if (!picture) return [];
    const roles = ROLES.filter((role) => role === "image" || picture.maps.some((map) => map.role === role));
    return roles.map((role) => new Pane(this.page, picture, role));
  }

  legend(pictures) {
    const { classes, others } = legendOf(pictures);
    const chips = classes.map((k) => {
      const node = el("button", { type: "button", class: "chip", "aria-pressed": String(!view.hidden.has(k)), "data-class": k }, swatchOf(rgb(this.page.colours[k])), this.page.classes[k]);
      node.addEventListener("click", () => {
        view.hidden.has(k) ? view.hidden.delete(k) : view.hidden.add(k);
        node.setAttribute("aria-pressed", String(!view.hidden.has(k)));
        this.colour();
      });
      return node;
    });
    const errors = pictures.flatMap((picture) => picture.maps).filter((map) => map.role === "errors").flatMap((map) => map.entries);
    const named = new Map([...others, ...errors.filter((entry) => !entry.hidden && !entry.absent).map((entry) => [entry.name, entry.colour])]);
    this.chips.replaceChildren(...chips, ...[...named].map(([name, colour]) => el("span", { class: "key" }, swatchOf(rgb(colour)), name)));
    const roles = [...new Set(this.panes.map((pane) => pane.role))];
    this.roles.replaceChildren(
      ...roles.map((role) =>
        el("button", { type: "button", "data-role": role, "aria-pressed": String(this.shownRoles.has(role)), onclick: () => this.flip(role) }, role),
      ),
    );
  }

  flip(role) {
    this.shownRoles.has(role) ? this.shownRoles.delete(role) : this.shownRoles.add(role);
    this.toggle();
  }

  toggle() {
    for (const pane of this.panes) pane.node.hidden = !this.shownRoles.has(pane.role);
    for (const button of this.roles.children) button.setAttribute("aria-pressed", String(this.shownRoles.has(button.dataset.role)));
  }

  colour(opacity = view.opacity) {
    for (const pane of this.panes) pane.colour({ opacity, hidden: view.hidden });
  }

  move() {
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
    this.bound();
  }

  bound() {
    for (const axis of ["x", "y"]) view[axis] = Math.min(0, Math.max(1 - view.scale, view[axis]));
    this.move();
  }

  wheel(event) {
    const stage = event.target.closest(".stage");
    if (!stage) return;
    event.preventDefault();
    const box = stage.getBoundingClientRect();
    this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]);
  }

  grab(event) {
    const stage = event.target.closest(".stage");
    if (!stage || view.scale === 1) return;
    const box = stage.getBoundingClientRect();
    const [x, y] = [view.x - event.clientX / box.width, view.y - event.clientY / box.height];
    stage.setPointerCapture(event.pointerId);
    const move = (moved) => (Object.assign(view, { x: x + moved.clientX / box.width, y: y + moved.clientY / box.height }), this.bound());
    stage.addEventListener("pointermove", move);
    stage.addEventListener("lostpointercapture", () => stage.removeEventListener("pointermove", move), { once: true });
  }

  key(event) {
    if (event.target.type === "range" || event.ctrlKey || event.metaKey || event.altKey) return;
    const roles = [...this.roles.children].map((button) => button.dataset.role);
    const does = { ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), "+": () => this.zoom(STEP), "=": () => this.zoom(STEP), "-": () => this.zoom(1 / STEP), 0: () => this.fit(), h: () => this.colour(0) };
    const act = does[event.key] ?? (roles[Number(event.key) - 1] ? () => this.flip(roles[Number(event.key) - 1]) : null);
    if (!act) return;
    event.preventDefault();
    act();
    if (event.key === "h") this.dialog.addEventListener("keyup", () => this.colour(), { once: true });
  }

  // all columns of a case: those of classes as a table, the others by their groups
  known(i) {
    const { page } = this;
    const kinds = new Map();
    const rows = new Map();
    const groups = new Map();
    for (const column of page.columns) {
      if (column.of !== null) {
        kinds.set(column.short, column.isText);
        rows.set(column.of, (rows.get(column.of) ?? new Map()).set(column.short, column));
      } else if (column.key !== "id" && column.text(i) !== "") {
        // a measure's group is its name, and the rest of its label the region
        const [heading, term] = column.key.startsWith("measure/") ? [column.label.slice(column.group.length + 2), column.short] : [column.group, column.title];
        groups.set(heading, [...(groups.get(heading) ?? []), [term, column.text(i)]]);
      }
    }
    const present = [...rows].filter(([, columns]) => columns.get("status")?.text(i) !== "absent").sort(([one], [other]) => one - other);
    const table = rows.size
      ? el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "class"), ...[...kinds].map(([kind, isText]) => el("th", { scope: "col", class: isText ? "" : "n" }, kind)))), el("tbody", {}, ...present.map(([k, columns]) => this.classRow(i, k, kinds, columns))))
      : null;
    const facts = [...groups].map(([group, members]) => el("div", { class: "known" }, el("h3", {}, group), el("dl", {}, ...members.flatMap(([term, text]) => [el("dt", {}, term), el("dd", {}, text)]))));
    return [this.about(i), ...facts, table ? el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "scores by class" }, table) : null].filter(Boolean);
  }

  classRow(i, k, kinds, columns) {
    return el("tr", {}, el("th", { scope: "row" }, this.page.classes[k]), ...[...kinds].map(([kind, isText]) => el("td", { class: isText ? "" : "n" }, columns.get(kind)?.text(i) ?? "")));
  }

  // what the picture is of: its size beside the case's, the slice of a volume, the files
  about(i) {
    const first = this.page.pictures.get(i);
    const picture = first && this.planes[this.plane.value];
    if (!picture) return null;
    const [size, shown] = [picture.size, picture.shown].map((shape) => shape.join(" × "));
    const real = picture.tiles?.length ? `; zooming in shows its own pixels in ${plural(picture.tiles.length, "tile")}, where most is wrong` : "";
    const parts = [size === shown ? `${size} pixels` : `${size} pixels, reduced to ${shown}${real}`];
    if (picture.slice) parts.unshift(`slice ${picture.slice.join(" of ")}${picture === first ? `, the one with the most ${picture.maps.some((map) => map.role === "errors") ? "wrong" : "object"} pixels` : ""}`);
    for (const [role, names] of Object.entries(picture.names ?? {})) if (names.length) parts.push(`${role}: ${names.join(", ")}`);
    return el("p", { class: "minor about" }, parts.join(" · "));
  }
}
