// An input that somebody types into at leisure: what is typed stays while the view is drawn anew, until there is another value.
import { html, useLayoutEffect, useRef } from "../html.js";

export function TextInput({ value, ...others }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    box.current.value = value;
  }, [value]);
  return html`<input ref=${box} spellcheck="false" ...${others} />`;
}
