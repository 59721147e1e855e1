// The controls above the table: filters as a form and as chips, columns, and exports.
function csvCell(value) {
  const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value; // no text is a formula
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvOf(columns, order) {
  const number = (column, i) => (Number.isNaN(column.value(i)) ? "" : column.show(column.value(i)).replaceAll(",", ""));
  const line = (cells) => `${cells.map(csvCell).join(",")}\n`;
  const rows = order.map((i) => line(columns.map((column) => (column.isText ? column.text(i) : number(column, i)))));
  return line(columns.map((column) => column.title)) + rows.join("");
}

function save(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// a choice among columns that the address keeps under a name
const pick = (label, columns, chosen, name) => select(label, optionsOf(columns), chosen.key, (value) => State.here().with({ [name]: value }).go({ replace: true }));

const optionsOf = (columns) => columns.map((column) => ({ value: column.key, label: column.title, group: column.group }));

class Toolbar {
  constructor(place, page) {
    Object.assign(this, { page, search: byId("find"), chooser: place.querySelector(".chooser"), chips: place.querySelector(".chips") });
    this.search.addEventListener("input", () => State.here().with({ q: this.search.value || null }).go({ replace: true }));
    this.selects = this.pickers();
    byId("range").before(...this.selects);
    this.range(byId("range"), page.columns.filter((column) => !column.isText));
    byId("copy").addEventListener("click", async () => {
      await copyLines(this.order.map((i) => page.column.get("id").raw[i]).join("\n"));
      byId("said").textContent = `${plural(this.order.length, "id")} copied`;
    });
    byId("save").addEventListener("click", () => save("cases.csv", csvOf(this.columns, this.order)));
    this.chooser.addEventListener("toggle", () => this.choose());
    this.chooser.addEventListener("change", () => {
      const checked = [...this.chooser.querySelectorAll("input:checked")].map((input) => input.value);
      State.here().with({ cols: checked }).go({ replace: true });
    });
  }

  // cases by columns of few texts: what became of one class, the cluster, a slice
  pickers() {
    const choices = this.page.columns.filter((column) => column.kind === "choice");
    const option = (column) => (word) => ({ value: `is.${column.key}=${word}`, label: word });
    const [statuses, others] = [true, false].map((status) => choices.filter((column) => column.key.startsWith("status/") === status));
    const ofClass = (column) => {
      const held = { value: `has=${column.key.slice("status/".length)}`, label: "in the target" };
      const options = [held, ...["found", "missed", "false alarm", "absent"].map(option(column))];
      return options.map(({ value, label }) => ({ value, label: `${column.label}: ${label}`, group: column.label }));
    };
    const found = others.map((column) => this.picker(column.label, column.names.map(option(column))));
    return statuses.length ? [this.picker("class", statuses.flatMap(ofClass)), ...found] : found;
  }

  picker(label, options) {
    const own = new Set(options.map(({ value }) => value));
    const node = select(label, [{ value: "", label: `any ${label}` }, ...options], "", (value) => {
      const kept = [...State.here()].filter((pair) => !own.has(pair.join("=")));
      const [, name, text] = /^([^=]*)=(.*)$/s.exec(value) ?? [];
      new State(value ? [...kept, [name, text]] : kept).go();
    });
    node.follow = (state) => (node.value = [...state].map((pair) => pair.join("=")).find((value) => own.has(value)) ?? "");
    return node;
  }

  range(place, numeric) {
    place.hidden = !numeric.length;
    const measure = select("measure", optionsOf(numeric), this.page.sort, () => {});
    const [low, high] = place.querySelectorAll(".end");
    place.firstElementChild.append(measure);
    const set = () => State.here().with({ [`in.${measure.value}`]: `${low.value.trim()}..${high.value.trim()}` }).go();
    // a listener: a handler that returns false would refuse every other key
    place.addEventListener("keydown", (event) => event.key === "Enter" && event.target.matches(".end") && set());
    byId("within").onclick = set;
  }

  show(state, { order, filters }, columns) {
    Object.assign(this, { order, columns });
    if (document.activeElement !== this.search) this.search.value = state.get("q") ?? "";
    for (const node of this.selects) node.follow(state);
    const without = ({ name, value }) => state.with({ [name]: state.getAll(name).filter((each) => each !== value) }).link;
    const cross = () => el("span", { "aria-hidden": "true" }, " ×");
    const chips = filters.map((filter) => el("a", { class: "chip", href: without(filter), title: "remove this filter" }, filter.words, cross()));
    const clear = state.with(Object.fromEntries(filters.map(({ name }) => [name, null]))).link;
    this.chips.replaceChildren(...chips, filters.length > 1 ? el("a", { class: "chip clear", href: clear }, "clear all") : "");
    byId("count").textContent = filters.length ? `${whole(order.length)} of ${plural(this.page.n, "case")}` : plural(this.page.n, "case");
    this.choose();
  }

  // the columns as boxes by their groups
  choose() {
    if (!this.chooser.open) return;
    const { columns } = this.page;
    const box = (column) => el("label", {}, el("input", { type: "checkbox", value: column.key, disabled: column.key === "id" }), column.title);
    const field = (group) => el("fieldset", {}, el("legend", {}, group), ...columns.filter((column) => column.group === group).map(box));
    const place = this.chooser.querySelector(".choices");
    if (!place.children.length) place.append(...[...new Set(columns.map((column) => column.group))].map(field));
    for (const input of place.querySelectorAll("input")) input.checked = this.columns.some((column) => column.key === input.value);
  }
}
