// Above the table: the filters as a form and as chips, the columns, and what can be taken away.
function csvCell(value) {
  const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value; // no text is a formula
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const plainNumber = (column, i) => (Number.isNaN(column.value(i)) ? "" : column.show(column.value(i)).replaceAll(",", ""));

function csvOf(columns, order) {
  const lines = [columns.map((column) => csvCell(column.title)).join(",")];
  for (const i of order) lines.push(columns.map((column) => csvCell(column.isText ? column.text(i) : plainNumber(column, i))).join(","));
  return lines.join("\n") + "\n";
}

function save(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const optionsOf = (columns) => columns.map((column) => ({ value: column.key, label: column.title, group: column.group }));

class Toolbar {
  constructor(place, page) {
    this.page = page;
    this.numeric = page.columns.filter((column) => !column.isText);
    this.search = el("input", { type: "search", id: "find", placeholder: "find a case", "aria-label": "find a case", autocomplete: "off" });
    this.search.addEventListener("input", () => State.here().with({ q: this.search.value || null }).go({ replace: true }));
    this.chips = el("div", { class: "chips" });
    this.count = el("p", { class: "count", role: "status", id: "count" });
    this.chooser = el("details", { class: "chooser" }, el("summary", {}, "columns"), el("div", { class: "choices" }));
    this.form = el("div", { class: "toolbar" }, this.search, this.classes(), ...this.choices(), this.numeric.length ? this.range() : null);
    const buttons = [
      el("button", { type: "button", id: "copy", onclick: () => this.copyIds() }, "copy ids"),
      el("button", { type: "button", id: "save", onclick: () => save("cases.csv", csvOf(this.columns, this.order)) }, "save CSV"),
      this.chooser,
    ];
    place.replaceChildren(this.form, this.chips, el("div", { class: "taken" }, this.count, ...buttons));
  }

  // cases by what became of one class
  classes() {
    const statuses = this.page.columns.filter((column) => column.key.startsWith("status/"));
    if (!statuses.length) return null;
    const optionsFor = ({ key, label }) => [{ value: `has=${key.slice("status/".length)}`, label: `${label}: in the target`, group: label }, ...["found", "missed", "false alarm", "absent"].map((word) => ({ value: `is.${key}=${word}`, label: `${label}: ${word}`, group: label }))];
    const ofClass = (name) => name === "has" || name.startsWith("is.status/");
    const chosen = select("class", [{ value: "", label: "any class" }, ...statuses.flatMap(optionsFor)], "", (value) => {
      const state = this.cleared(State.here(), ofClass);
      const mark = value.indexOf("=");
      (value ? state.with({ [value.slice(0, mark)]: value.slice(mark + 1) }) : state).go();
    });
    this.reflect = (state) => (chosen.value = [...state].find(([name]) => ofClass(name))?.join("=") ?? "");
    return chosen;
  }

  // cases by the other columns of few texts, such as the cluster
  choices() {
    const columns = this.page.columns.filter((column) => column.kind === "choice" && !column.key.startsWith("status/"));
    this.selects = [];
    return columns.map((column) => {
      const options = [{ value: "", label: `any ${column.label}` }, ...column.names.map((name) => ({ value: name, label: name }))];
      const node = select(column.label, options, "", (value) => State.here().with({ [`is.${column.key}`]: value || null }).go());
      this.selects.push([`is.${column.key}`, node]);
      return node;
    });
  }

  range() {
    const measure = select("measure", optionsOf(this.numeric), this.page.sort, () => {});
    const [low, high] = ["from", "to"].map((word) => el("input", { type: "text", inputmode: "decimal", placeholder: word, "aria-label": `${word} this value`, class: "end" }));
    const set = () => State.here().with({ [`in.${measure.value}`]: `${low.value.trim()}..${high.value.trim()}` }).go();
    const onkeydown = (event) => event.key === "Enter" && set();
    for (const end of [low, high]) end.addEventListener("keydown", onkeydown);
    return el("span", { class: "pair" }, measure, low, high, el("button", { type: "button", id: "within", onclick: set }, "within"));
  }

  cleared(state, matches) {
    return state.with(Object.fromEntries([...state].filter(([name]) => matches(name)).map(([name]) => [name, null])));
  }

  async copyIds() {
    await navigator.clipboard.writeText(this.order.map((i) => this.page.column.get("id").raw[i]).join("\n"));
    say(`${plural(this.order.length, "id")} copied`);
  }

  show(state, { order, filters }, columns) {
    Object.assign(this, { order, columns });
    if (document.activeElement !== this.search) this.search.value = state.get("q") ?? "";
    this.reflect?.(state);
    for (const [name, node] of this.selects) node.value = state.get(name) ?? "";
    const chips = filters.map((filter) =>
      el("a", { class: "chip", href: state.without(filter.name, filter.value).link, title: "take this filter away" }, filter.words, el("span", { "aria-hidden": "true" }, " ×")),
    );
    if (filters.length > 1) chips.push(el("a", { class: "chip clear", href: this.cleared(state, (name) => filters.some((filter) => filter.name === name)).link }, "clear all"));
    this.chips.replaceChildren(...chips);
    this.count.textContent = filters.length ? `${whole(order.length)} of ${plural(this.page.n, "case")}` : plural(this.page.n, "case");
    this.choose(columns);
  }

  choose(columns) {
    const shown = new Set(columns.map((column) => column.key));
    const box = this.chooser.querySelector(".choices");
    const filled = () => {
      const groups = new Map(this.page.columns.map((column) => [column.group, this.page.columns.filter((other) => other.group === column.group)]));
      box.replaceChildren(...[...groups].map(([group, members]) => el("fieldset", {}, el("legend", {}, group), ...members.map((column) => this.choice(column, shown)))));
    };
    this.chooser.ontoggle = () => this.chooser.open && filled();
    if (this.chooser.open) for (const input of box.querySelectorAll("input")) input.checked = shown.has(input.value);
  }

  choice(column, shown) {
    const box = el("input", { type: "checkbox", value: column.key, checked: shown.has(column.key), disabled: column.key === "id" });
    box.addEventListener("change", () => {
      const checked = new Set([...this.chooser.querySelectorAll("input:checked")].map((input) => input.value));
      State.here().with({ cols: this.page.columns.map((each) => each.key).filter((key) => checked.has(key)) }).go({ replace: true });
    });
    return el("label", {}, box, column.title);
  }
}
