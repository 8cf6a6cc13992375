// A page of rows: a click on a column sorts them, a field filters them, a click or Enter opens one.
function make(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function render({ model, el }) {
  const words = make("datalist", { id: `ck-words-${Math.random().toString(36).slice(2)}` });
  const filter = make("input", { type: "search", placeholder: "Filter", ariaLabel: "Filter" });
  const count = make("span", { role: "status" });
  const previous = make("button", { textContent: "‹", ariaLabel: "Previous page", className: "jupyter-button" });
  const next = make("button", { textContent: "›", ariaLabel: "Next page", className: "jupyter-button" });
  const hint = make("span", { textContent: model.get("tick_label") });
  const head = make("tr", {}), body = make("tbody", {});
  const table = make("table", { role: "grid", ariaLabel: model.get("label") }, make("thead", {}, head), body);
  const frame = make("div", { className: "ck-frame" }, table);
  const canTick = model.get("tick_label") !== "", pageSize = model.get("page_size");
  table.ariaMultiSelectable = canTick ? "true" : null;
  // Where the focus goes on the next page; whether the row that was opened is to be shown there.
  let focus = null, isAsked = false;
  const set = (changes) => {
    for (const [name, value] of Object.entries(changes)) model.set(name, value);
    model.save_changes();
  };
  const size = () => model.get("rows").length;
  // Newest and largest first, but names from the first letter on.
  const sort = (column) => {
    const [sorted, sign] = model.get("order");
    const isText = model.get("rows").some((row) => typeof row[column][1] === "string");
    set({ order: [column, column === sorted ? -sign : isText ? 1 : -1] });
  };
  if (canTick) head.append(make("td", { className: "ck-tick" }));
  const headings = model.get("columns").map((name, column) => {
    const button = make("button", { textContent: name });
    button.addEventListener("click", () => sort(column));
    return make("th", { scope: "col" }, button);
  });
  head.append(...headings);
  const tick = (name) => {
    const ticked = model.get("ticked");
    set({ ticked: ticked.includes(name) ? ticked.filter((one) => one !== name) : [...ticked, name].slice(-2) });
    mark();
  };
  const rowOf = (cells, place) => {
    const name = cells[0][1];
    const row = make("tr", { tabIndex: place ? -1 : 0, ariaRowIndex: model.get("first") + place + 2 });
    row.name = name;
    if (canTick) {
      const box = make("input", { type: "checkbox", tabIndex: -1, ariaLabel: `Compare ${cells[0][0]}` });
      const cell = make("td", { className: "ck-tick" }, box);
      cell.addEventListener("click", (event) => {
        event.stopPropagation();
        tick(name);
      });
      row.append(cell);
    }
    row.append(...cells.map(([text, , share]) => {
      const cell = make("td", { textContent: text, title: text });
      if (share != null) cell.style.setProperty("--ck-share", share);
      return cell;
    }));
    row.addEventListener("click", () => model.send({ open: name }));
    return row;
  };
  // Which rows are open and ticked.
  const mark = () => {
    for (const row of body.children) {
      row.ariaCurrent = row.name === model.get("chosen") ? "true" : null;
      if (!canTick) continue;
      row.ariaSelected = String(model.get("ticked").includes(row.name));
      row.querySelector("input").checked = row.ariaSelected === "true";
    }
  };
  const show = () => {
    const row = [...body.children].find((one) => one.ariaCurrent);
    if (!row) return;
    moveTo(row);
    const above = row.offsetTop - head.offsetHeight, below = row.offsetTop + row.offsetHeight;
    if (above < frame.scrollTop) frame.scrollTop = above;
    if (below > frame.scrollTop + frame.clientHeight) frame.scrollTop = below - frame.clientHeight;
  };
  // Tab comes to one row, the others are reached by arrows.
  const moveTo = (row) => {
    for (const other of body.children) other.tabIndex = other === row ? 0 : -1;
  };
  const draw = () => {
    const [found, all] = model.get("counts"), first = model.get("first"), [column, sign] = model.get("order");
    const number = (one) => one.toLocaleString("en");
    const isPaged = found > size();
    const shown = isPaged ? `${number(first + 1)} to ${number(first + size())} of ${number(found)}` : number(found);
    count.textContent = isPaged && found === all ? shown : `${shown} of ${number(all)}`;
    previous.style.display = next.style.display = isPaged ? "" : "none";
    previous.disabled = first === 0;
    next.disabled = first + size() >= found;
    table.ariaRowCount = found + 1;
    headings.forEach((heading, place) => {
      heading.ariaSort = place === column ? (sign < 0 ? "descending" : "ascending") : null;
    });
    words.replaceChildren(...model.get("offered").map((value) => make("option", { value })));
    if (words.children.length) filter.setAttribute("list", words.id);
    if (filter !== document.activeElement) filter.value = model.get("words");
    if (body.contains(document.activeElement)) focus ??= "first";
    body.replaceChildren(...model.get("rows").map(rowOf));
    frame.scrollTop = 0;
    mark();
    if (isAsked) show();
    if (focus) go(focus === "last" ? size() - 1 : 0);
    [focus, isAsked] = [null, false];
  };
  const go = (place) => {
    if (!body.children[place]) return;
    moveTo(body.children[place]);
    body.children[place].focus();
  };
  const turn = (first, where) => {
    focus = where;
    set({ first });
  };
  body.addEventListener("keydown", (event) => {
    const [found] = model.get("counts"), first = model.get("first"), last = size() - 1;
    const row = event.target.closest("tr"), place = [...body.children].indexOf(row);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter") row.click();
    if (event.key === " " && canTick) tick(row.name);
    if (step === undefined && event.key !== " ") return;
    event.preventDefault();
    if (step === undefined) return;
    if (place + step > last && first + size() < found) {
      turn(step === Infinity ? lastPage(found) : first + size(), step === Infinity ? "last" : "first");
    } else if (place + step < 0 && first > 0) {
      turn(step === -Infinity ? 0 : first - pageSize, step === -Infinity ? "first" : "last");
    } else {
      go(Math.min(Math.max(place + step, 0), last));
    }
  });
  const lastPage = (found) => found - 1 - ((found - 1) % pageSize);
  previous.addEventListener("click", () => set({ first: model.get("first") - pageSize }));
  next.addEventListener("click", () => set({ first: model.get("first") + pageSize }));
  filter.addEventListener("input", () => set({ words: filter.value }));
  for (const name of ["rows", "counts", "order"]) model.on(`change:${name}`, draw);
  model.on("change:ticked", mark);
  model.on("change:chosen", () => {
    mark();
    show();
    isAsked = ![...body.children].some((row) => row.ariaCurrent);
  });
  el.classList.add("ck-grid");
  // Else Jupyter takes the arrows and Enter for its own.
  el.dataset.lmSuppressShortcuts = "true";
  el.append(make("div", {}, filter, words, count, previous, next, hint), frame);
  draw();
}

export default { render };
