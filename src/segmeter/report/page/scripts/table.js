// The table of the chosen cases. Only visible rows are in the page.
const ROW = 34; // pixels
const SPARE = 8; // rows above and below the visible ones
const PRINTED = 40; // rows on paper
const KEY_STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

const longest = (texts) => texts.reduce((most, text) => Math.max(most, text.length), 0); // not `max`, which takes no million

class VirtualTable {
  constructor(place, page) {
    Object.assign(this, { page, order: [], columns: [] });
    [this.box, this.table, this.head, this.body] = place.querySelectorAll(".rows, table, thead tr, tbody");
    [this.above, this.below] = [1, 2].map(() => el("tr", { class: "gap", "aria-hidden": "true" }));
    this.box.onscroll = () => this.draw();
    this.body.onclick = ({ target }) => target.closest("a, .gap") || target.closest("tr").querySelector("a").click();
    this.body.onkeydown = (event) => this.key(event);
    addEventListener("beforeprint", () => this.draw(true));
    addEventListener("afterprint", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  show({ order, columns, column: sorted, descending }) {
    if (this.order !== order) this.box.scrollTop = 0;
    Object.assign(this, { order, columns });
    this.named ??= longest(columns[0].raw);
    this.head.replaceChildren(...columns.map((column) => {
      const turned = column === sorted ? !descending : column.better !== "higher" && !column.isText;
      const onclick = () => State.here().with({ sort: (turned ? "-" : "") + column.key }).go({ replace: true });
      const button = el("button", { type: "button", title: column.title, onclick }, column.title);
      const order = column === sorted ? (descending ? "descending" : "ascending") : undefined;
      const style = { "--longest": column.key === "id" ? this.named : longest(column.names ?? []) };
      return el("th", { scope: "col", class: column.isText ? column.key : "n", "aria-sort": order, style }, button);
    }));
    this.table.setAttribute("aria-rowcount", order.length + 1);
    this.draw();
  }

  draw(all = false) {
    const seen = Math.ceil(this.box.clientHeight / ROW) || 20;
    const first = all ? 0 : Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const row = (i, k) => {
      const cells = this.columns.slice(1).map((column) => {
        const text = column.text(i);
        return el("td", { class: column.isText ? "" : "n", title: column.isText ? text : undefined }, text);
      });
      const name = el("td", {}, el("a", { href: withCase(this.page, i).link, title: this.page.ids[i] }, this.page.ids[i]));
      return el("tr", { "data-case": i, "data-place": first + k, "aria-rowindex": first + k + 2 }, name, ...cells);
    };
    const rows = this.order.slice(first, all ? PRINTED : first + seen + 2 * SPARE).map(row);
    this.above.style.height = `${first * ROW}px`;
    this.below.style.height = all ? "0" : `${(this.order.length - first - rows.length) * ROW}px`;
    const focused = document.activeElement?.closest("tr[data-case]")?.dataset.case;
    this.body.replaceChildren(this.above, ...rows, this.below);
    if (focused) this.body.querySelector(`tr[data-case="${focused}"] a`)?.focus({ preventScroll: true });
  }

  // to the row some steps further, scrolled into view
  key(event) {
    const row = event.target.closest("tr[data-case]");
    if (!KEY_STEPS[event.key] || !row) return;
    event.preventDefault();
    const place = Math.min(this.order.length - 1, Math.max(0, Number(row.dataset.place) + KEY_STEPS[event.key]));
    const [top, room] = [place * ROW, this.box.clientHeight - 2 * ROW];
    this.box.scrollTop = Math.min(top, Math.max(top - room, this.box.scrollTop));
    this.draw();
    this.body.querySelector(`tr[data-place="${place}"] a`)?.focus({ preventScroll: true });
  }
}
