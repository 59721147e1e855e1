// The controls above the table: filters as a form and as chips, columns, and exports.
function csvOf(columns, order) {
  const cell = (value) => {
    const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value; // no text is a formula
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const number = (column, i) => (Number.isNaN(column.value(i)) ? "" : column.show(column.value(i)).replaceAll(",", ""));
  const rows = order.map((i) => columns.map((column) => (column.isText ? column.text(i) : number(column, i))));
  return [columns.map((column) => column.title), ...rows].map((cells) => `${cells.map(cell).join(",")}\n`).join("");
}

const optionsOf = (columns) => columns.map((column) => ({ value: column.key, label: column.title, group: column.group }));

// a measure that the address has under a name, and the choice among all
function measureOf({ page, state }, name, other, label) {
  const column = page.column.get(state.get(name) ?? other) ?? page.numeric[0];
  const choose = (value) => State.here().with({ [name]: value }).go({ replace: true });
  return [column, select(label, optionsOf(page.numeric), column.key, choose)];
}

// a part of a state, as the value of an option
const textOf = (pair) => String(new State([pair]));

class Toolbar {
  constructor(place, page) {
    Object.assign(this, { page, search: byId("find"), chooser: place.querySelector(".chooser"), chips: place.querySelector(".chips") });
    this.search.oninput = () => State.here().with({ q: this.search.value || null }).go({ replace: true });
    this.selects = this.pickers();
    const range = byId("range");
    range.before(...this.selects);
    range.hidden = !page.numeric.length;
    const measure = select("measure", optionsOf(page.numeric), page.sort, () => {});
    const [low, high] = range.querySelectorAll(".end");
    range.firstElementChild.append(measure);
    byId("within").onclick = () => State.here().with({ [`in.${measure.value}`]: `${low.value.trim()}..${high.value.trim()}` }).go();
    // a listener: a handler that returns false would refuse every other key
    range.addEventListener("keydown", (event) => event.key === "Enter" && event.target.matches(".end") && byId("within").click());
    byId("copy").onclick = async () => {
      await copyLines(this.order.map((i) => page.ids[i]).join("\n"));
      byId("said").textContent = `${plural(this.order.length, "id")} copied`;
    };
    byId("save").onclick = () => {
      const table = new Blob([csvOf(this.columns, this.order)], { type: "text/csv" });
      const link = el("a", { href: URL.createObjectURL(table), download: "cases.csv" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    };
    this.chooser.addEventListener("toggle", () => this.choose());
    this.chooser.onchange = () => State.here().with({ cols: [...this.chooser.querySelectorAll(":checked")].map(({ value }) => value) }).go({ replace: true });
  }

  // cases by columns of few texts: what became of one class, the cluster, a slice
  pickers() {
    const choices = this.page.columns.filter(({ kind }) => kind === "choice");
    const [statuses, others] = [true, false].map((status) => choices.filter(({ key }) => key.startsWith("status/") === status));
    const option = ({ key }, word) => ({ value: textOf([`is.${key}`, word]), label: word });
    const ofClass = (column) => {
      const held = { value: textOf(["has", column.key.slice("status/".length)]), label: "in the target" };
      const options = [held, ...["found", "missed", "false alarm", "absent"].map((word) => option(column, word))];
      return options.map(({ value, label }) => ({ value, label: `${column.label}: ${label}`, group: column.label }));
    };
    const found = others.map((column) => this.picker(column.label, column.names.map((word) => option(column, word))));
    return statuses.length ? [this.picker("class", statuses.flatMap(ofClass)), ...found] : found;
  }

  picker(label, options) {
    const own = new Set(options.map(({ value }) => value));
    const node = select(label, [{ value: "", label: `any ${label}` }, ...options], "", (value) => {
      const kept = [...State.here()].filter((pair) => !own.has(textOf(pair)));
      new State([...kept, ...new State(value)]).go();
    });
    node.follow = (state) => (node.value = [...state].map(textOf).find((text) => own.has(text)) ?? "");
    return node;
  }

  show({ state, order, filters, columns }) {
    Object.assign(this, { order, columns });
    if (document.activeElement !== this.search) this.search.value = state.get("q") ?? "";
    for (const node of this.selects) node.follow(state);
    const without = ({ name, value }) => state.with({ [name]: state.getAll(name).filter((each) => each !== value) }).link;
    const cross = () => el("span", { "aria-hidden": "true" }, " ×");
    const chips = filters.map((filter) => el("a", { class: "chip", href: without(filter), title: "remove this filter" }, filter.words, cross()));
    const clear = state.with(Object.fromEntries(filters.map(({ name }) => [name, null]))).link;
    this.chips.replaceChildren(...chips, filters.length > 1 ? el("a", { class: "chip clear", href: clear }, "clear all") : "");
    byId("count").textContent = (filters.length ? `${whole(order.length)} of ` : "") + plural(this.page.n, "case");
    this.choose();
  }

  // the columns as boxes by their groups
  choose() {
    if (!this.chooser.open) return;
    const place = this.chooser.querySelector(".choices");
    const box = ({ key, title }) => el("label", {}, el("input", { type: "checkbox", value: key, disabled: key === "id" }), title);
    const { columns } = this.page;
    const field = (group) => el("fieldset", {}, el("legend", {}, group), ...columns.filter((column) => column.group === group).map(box));
    if (!place.children.length) place.append(...[...new Set(columns.map(({ group }) => group))].map(field));
    for (const input of place.querySelectorAll("input")) input.checked = this.columns.some(({ key }) => key === input.value);
  }
}
