// Rows that a click on a column sorts, a field filters, and a click or Enter opens.
const AT_ONCE = 100;

function make(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function render({ model, el }) {
  const filter = make("input", { type: "search", placeholder: "Filter", ariaLabel: "Filter" });
  const count = make("span", { role: "status" });
  const head = make("tr", {}), body = make("tbody", {});
  const table = make("table", { role: "grid", ariaLabel: model.get("label") }, make("thead", {}, head), body);
  const frame = make("div", { className: "ck-frame" }, table);
  let sorted = { column: -1, sign: 1 }, found = [];
  head.append(...model.get("columns").map((name, column) => {
    const button = make("button", { textContent: name });
    const heading = make("th", { scope: "col" }, button);
    button.addEventListener("click", () => {
      // The largest first, but names from the first letter on.
      sorted = { column, sign: column === sorted.column ? -sorted.sign : column ? -1 : 1 };
      for (const other of head.children) other.removeAttribute("aria-sort");
      heading.ariaSort = sorted.sign < 0 ? "descending" : "ascending";
      find();
    });
    return heading;
  }));
  const compare = (one, other) => {
    const [a, b] = [one, other].map((index) => model.get("rows")[index][sorted.column][1]);
    // What has no value is last, whatever comes first.
    if (a === null || b === null) return (a === null) - (b === null);
    return sorted.sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
  };
  const find = () => {
    const rows = model.get("rows"), words = filter.value.toLowerCase().split(/\s+/);
    const has = (row) => words.every((word) => row[0][0].toLowerCase().includes(word));
    found = [...rows.keys()].filter((index) => has(rows[index]));
    if (sorted.column >= 0) found.sort(compare);
    count.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    table.ariaRowCount = found.length + 1;
    body.replaceChildren();
    frame.scrollTop = 0;
    more();
  };
  const more = (until = 0) => {
    const begun = body.children.length;
    body.append(...found.slice(begun, Math.max(begun + AT_ONCE, until + 1)).map((index, place) => {
      const cells = model.get("rows")[index].map(([text, , share]) => {
        const cell = make("td", { textContent: text, title: text });
        if (share !== undefined) cell.style.setProperty("--ck-share", share);
        return cell;
      });
      const row = make("tr", { tabIndex: begun + place ? -1 : 0, ariaRowIndex: begun + place + 2 }, ...cells);
      row.addEventListener("click", () => model.send({ open: model.get("rows")[index][0][1] }));
      return row;
    }));
  };
  body.addEventListener("keydown", (event) => {
    const row = event.target, last = found.length - 1;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -last, End: last }[event.key];
    if (event.key === "Enter") row.click();
    if (step === undefined) return;
    event.preventDefault();
    const to = Math.min(Math.max(row.ariaRowIndex - 2 + step, 0), last);
    if (to >= body.children.length) more(to);
    row.tabIndex = -1;
    body.children[to].tabIndex = 0;
    body.children[to].focus();
  });
  frame.addEventListener("scroll", () => {
    if (frame.scrollTop + 2 * frame.clientHeight > frame.scrollHeight) more();
  });
  filter.addEventListener("input", find);
  model.on("change:rows", find);
  el.classList.add("ck-grid");
  // Else Jupyter takes the arrows and Enter for its own.
  el.dataset.lmSuppressShortcuts = "true";
  el.append(make("div", {}, filter, count), frame);
  find();
}

export default { render };
