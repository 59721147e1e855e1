// What the reader chose, kept in the address: every link is a choice of cases, and the browser's back button undoes it.
const MARK = "#?";

class State extends URLSearchParams {
  static here() {
    return new State(location.hash.startsWith(MARK) ? location.hash.slice(MARK.length) : "");
  }

  // a changed copy; null takes a parameter away, a list sets it several times
  with(changes) {
    const copy = new State(this);
    for (const [name, value] of Object.entries(changes)) {
      copy.delete(name);
      if (value !== null) for (const each of [value].flat()) copy.append(name, each);
    }
    return copy;
  }

  without(name, value) {
    return this.with({ [name]: this.getAll(name).filter((each) => each !== value) });
  }

  get link() {
    return MARK + this;
  }

  go(how) {
    goTo(this.link, how);
  }
}

// a new entry of the history, or a change of the present one, as while typing
function goTo(link, { replace = false } = {}) {
  if (link === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", link);
  dispatchEvent(new Event("hashchange"));
}

// The browser follows a link some time after its click, and keys that come before that are lost.
function followAtOnce(event) {
  const link = event.target.closest(`a[href^="${MARK}"]`);
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  goTo(link.getAttribute("href"));
}
