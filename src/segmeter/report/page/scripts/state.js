// What the reader chose, kept in the address: every link is a choice of cases, and the browser's back button undoes it.
const MARK = "#?";

class State extends URLSearchParams {
  static here() {
    return new State(location.hash.startsWith(MARK) ? location.hash.slice(MARK.length) : "");
  }

  // a changed copy; null takes a parameter away, a list sets it several times
  with(changes) {
    const kept = [...this].filter(([name]) => !Object.hasOwn(changes, name));
    const given = Object.entries(changes).flatMap(([name, value]) => [value ?? []].flat().map((each) => [name, each]));
    return new State([...kept, ...given]);
  }

  get link() {
    return MARK + this;
  }

  // a new entry of the history, or a change of the present one, as while typing
  go({ replace = false } = {}) {
    if (this.link === location.hash) return;
    history[replace ? "replaceState" : "pushState"](null, "", this.link);
    dispatchEvent(new Event("hashchange"));
  }
}

// A link to a section leaves the choice in the address. One to a choice is followed at once: the browser would do so
// some time after the click, and keys that come before that are lost.
function followLink(event) {
  const link = event.target.closest('a[href^="#"]')?.getAttribute("href");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (link.startsWith(MARK)) return new State(link.slice(MARK.length)).go();
  const head = document.querySelector(link);
  head.tabIndex = -1; // so that the keyboard goes on from there
  head.focus({ preventScroll: true });
  head.scrollIntoView();
}
