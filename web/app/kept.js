// What this browser keeps for the page, as texts under names that begin with `platform.`; where it may keep nothing, this tab remembers it.
const known = new Map();
addEventListener("storage", () => known.clear());

/** @returns {string | null} */
export function kept(name) {
  if (!known.has(name)) {
    try {
      known.set(name, localStorage.getItem(`platform.${name}`));
    } catch {
      known.set(name, null);
    }
  }
  return known.get(name);
}

/** Keeps a text; null forgets it. @returns {boolean} whether the browser keeps it, not only this tab */
export function keep(name, text) {
  known.set(name, text);
  try {
    if (text === null) localStorage.removeItem(`platform.${name}`);
    else localStorage.setItem(`platform.${name}`, text);
    return true;
  } catch {
    return false;
  }
}
