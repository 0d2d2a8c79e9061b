// Elements are made here, and text is put only by `textContent`: what the cluster says is never markup.

/** Return a new element. `class`, attributes, and `onclick` and the like as in HTML; children are nodes or text. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Set the text of a leaf, if it is another one. */
export function put(node, text) {
  const wanted = text == null ? "" : String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Set an attribute, if it is another one; null takes it away. */
export function mark(node, name, value) {
  if (value == null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/**
 * Make the children of `parent` those of `items`, one each in this order. An item keeps its node as long as its key is
 * there, so that focus, hover and a screen reader's place stay.
 */
export function keyed(parent, items, keyOf, make, update) {
  const old = (parent.nodesByKey ??= new Map());
  const now = new Map();
  let at = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const node = old.get(key) ?? make(item);
    now.set(key, node);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    update(node, item);
  }
  for (const [key, node] of old) if (now.get(key) !== node) node.remove();
  parent.nodesByKey = now;
}
