// Elements. Text from outside is never parsed as HTML.

const byId = (id) => document.getElementById(id);

/** A new element with these properties or attributes, and these children. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A new button. */
const button = (text, classes, onclick, label = text) =>
  make("button", { type: "button", className: classes, textContent: text, onclick, ariaLabel: label });

/** Sets a text only if it differs, because a screen reader may read a text again when it is set. */
function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

/**
 * Makes the children of `list` match `entries`, in order. A child stays the same element while its key
 * exists, so that it keeps the focus.
 */
function reconcile(list, entries, keyOf, create, update) {
  const known = new Map([...list.children].map((child) => [child.dataset.key, child]));
  const children = entries.map((entry) => {
    const key = String(keyOf(entry));
    const child = known.get(key) ?? create(entry);
    child.dataset.key = key;
    known.delete(key);
    return child;
  });
  known.forEach(leave);
  children.forEach((child, index) => {
    if (list.children[index] !== child) list.insertBefore(child, list.children[index] ?? null);
    update(child, entries[index], index);
  });
}

/** Removes an element. If it has the focus, the focus moves to the heading of its section. */
function leave(element) {
  if (element.contains(document.activeElement)) focusHeading(element);
  element.remove();
}

function focusHeading(element) {
  const heading = element.closest("section")?.querySelector("h2");
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus();
}

/** Puts an entry on top of a log that keeps the newest `most`. */
function log(list, entry, most) {
  list.prepend(entry);
  while (list.children.length > most) leave(list.lastElementChild);
}
