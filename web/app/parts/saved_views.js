// Views of a page that somebody saved by name, in this browser.
import { html, useState } from "../html.js";
import { keep, kept } from "../kept.js";
import { current, href } from "../location.js";
import { Menu } from "./menu.js";

function saved(page) {
  try {
    const views = JSON.parse(kept(`views.${page}`));
    return Array.isArray(views) ? views.filter((view) => typeof view?.name === "string" && typeof view?.query === "string") : [];
  } catch {
    return [];
  }
}

/** @param {{ page: string, without?: string[] }} props `without` are parameters that are not part of a view, such as the open row */
export function SavedViews({ page, without = [] }) {
  const [views, setViews] = useState(() => saved(page));
  const [isKept, setKept] = useState(true);
  // Another tab may have saved some meanwhile.
  const set = (change) => {
    const changed = change(saved(page));
    setKept(keep(`views.${page}`, JSON.stringify(changed)));
    setViews(changed);
  };
  const save = (event) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget).get("name")).trim();
    if (!name) return;
    const { params } = current();
    for (const one of without) params.delete(one);
    set((known) => [...known.filter((view) => view.name !== name), { name, query: params.toString() }].sort((a, b) => a.name.localeCompare(b.name)));
    event.currentTarget.reset();
  };
  return html`<${Menu} label=${views.length ? `Views (${views.length})` : "Views"}>${(close) => html`
    ${views.length ? html`<ul class="plain">${views.map((view) => html`<li key=${view.name}>
      <a href=${href(page, new URLSearchParams(view.query))} onClick=${close}>${view.name}</a>
      <button class="quiet" aria-label=${`Remove the view ${view.name}`} onClick=${() => set((known) => known.filter(({ name }) => name !== view.name))}>×</button>
    </li>`)}</ul>` : html`<p class="dim">None saved yet in this browser.</p>`}
    <form class="bar" onSubmit=${save}><input name="name" aria-label="Name of the view" placeholder="a name" required size="14" /><button>Save this view</button></form>
    ${!isKept && html`<p class="bad" role="alert">The browser keeps nothing for this page: copy the link instead.</p>`}`}
  </${Menu}>`;
}
