// The editor of a statement: a textarea whose text is drawn in colours behind it, with completion from the catalogue.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { useEscape } from "../keys.js";
import { complete } from "./sql_catalogue.js";
import { tokens } from "./sql_tokens.js";

/** Longer statements are not drawn in colours. */
const COLOURED = 20_000;

/** Where a character of the drawn text is, in the editor. */
function placeOf(drawn, offset) {
  /** @type {any} */
  const walker = document.createTreeWalker(drawn, NodeFilter.SHOW_TEXT);
  let rest = offset;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (rest <= node.length) {
      const range = document.createRange();
      range.setStart(node, rest);
      const [at, box] = [range.getBoundingClientRect(), drawn.closest(".sql-editor").getBoundingClientRect()];
      return { left: at.left - box.left, top: at.bottom - box.top };
    }
    rest -= node.length;
  }
  return { left: 0, top: 20 };
}

/** Replaces a part of the text so that the browser's undo knows of it. */
function replace(area, from, to, text) {
  area.setSelectionRange(from, to);
  if (!document.execCommand("insertText", false, text)) area.setRangeText(text, from, to, "end");
  return area.value;
}

function Drawn({ all, mark, at }) {
  const wrong = (token) => mark !== null && token.at <= mark && mark < token.at + token.text.length;
  return html`<pre aria-hidden="true" ref=${at}>${all.map((token) => (token.kind === "space" && !wrong(token) ? token.text : html`<span class=${`t-${token.kind}${wrong(token) ? " wrong" : ""}`}>${token.text}</span>`))}${"\n "}</pre>`;
}

function Offers({ list, chosen, place, take }) {
  const box = useRef(null);
  useEffect(() => box.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [chosen]);
  return html`<ul id="sql-offers" class="offers" role="listbox" aria-label="Completions" ref=${box} style=${{ left: `${place.left}px`, top: `${place.top + 2}px` }}>
    ${list.map((offer, index) => html`<li id=${`sql-offer-${index}`} key=${`${offer.kind} ${offer.name}`} role="option" aria-selected=${index === chosen}
      onMouseDown=${(event) => {
        event.preventDefault();
        take(index);
      }}><code>${offer.name}</code> <span>${offer.note}</span></li>`)}
  </ul>`;
}

/** The list of what can stand at the caret, and the keys that it obeys. */
function useCompletion(area, drawn, catalogue, change) {
  const [state, setState] = useState(null);
  const close = () => setState(null);
  const look = (asked = false) => {
    const { value, selectionStart, selectionEnd } = area.current;
    const found = selectionStart === selectionEnd ? complete(catalogue, tokens(value), selectionStart, asked) : null;
    setState(found && { ...found, chosen: 0, place: null });
  };
  const take = (index) => {
    const { name, kind } = state.offers[index];
    const value = replace(area.current, state.from, state.to, kind === "function" ? `${name}(` : name);
    change(value);
    close();
  };
  useLayoutEffect(() => {
    if (!state || state.place || !drawn.current) return;
    const place = placeOf(drawn.current, state.from);
    setState({ ...state, place: { ...place, left: Math.max(0, Math.min(place.left, drawn.current.clientWidth - 290)) } });
  }, [state]);
  useEscape(close, Boolean(state));
  /** Whether the key was one of the list's. */
  const key = (event) => {
    if (event.ctrlKey && event.key === " ") {
      look(true);
      return true;
    }
    if (!state || event.ctrlKey || event.metaKey || event.altKey) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const { length } = state.offers;
    if (step) setState({ ...state, chosen: (state.chosen + step + length) % length });
    else if ((event.key === "Tab" && !event.shiftKey) || event.key === "Enter") take(state.chosen);
    else {
      if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) close();
      return false;
    }
    return true;
  };
  return { state, look, take, close, key };
}

/**
 * @param {{ value: string, change: (text: string) => void, run: () => void, catalogue: any, mark: number | null, described?: string }} props
 *   `mark` is where the Mixer found a mistake, `described` the id of what it said
 */
export function SqlEditor({ value, change, run, catalogue, mark, described }) {
  const [area, drawn] = [useRef(null), useRef(null)];
  const completion = useCompletion(area, drawn, catalogue, change);
  const { state } = completion;
  const all = useMemo(() => (value.length > COLOURED ? [{ text: value, at: 0, kind: "sign" }] : tokens(value)), [value]);
  const key = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      completion.close();
      run();
    } else if (!completion.key(event)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const input = (event) => {
    change(event.currentTarget.value);
    completion.look();
  };
  const open = Boolean(state?.place);
  return html`<div class="sql-editor">
    <div class="sql-edit">
      <${Drawn} all=${all} mark=${value.length > COLOURED ? null : mark} at=${drawn} />
      <textarea ref=${area} class="code" data-search value=${value} spellcheck="false" autocomplete="off" autocapitalize="off" aria-label="SQL statement; Ctrl+Enter runs it"
        aria-autocomplete="list" aria-controls=${open ? "sql-offers" : undefined} aria-activedescendant=${open ? `sql-offer-${state.chosen}` : undefined}
        aria-invalid=${mark !== null} aria-describedby=${described} placeholder="SELECT …  Ctrl+Enter runs, Ctrl+Space completes"
        onInput=${input} onKeyDown=${key} onBlur=${completion.close} onMouseDown=${completion.close}></textarea>
    </div>
    ${open && html`<${Offers} list=${state.offers} chosen=${state.chosen} place=${state.place} take=${completion.take} />`}
    <span class="hidden" role="status">${open ? `${state.offers.length} completions, ${state.offers[state.chosen].name}` : ""}</span>
  </div>`;
}
