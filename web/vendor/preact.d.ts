// What the page uses of it.
export class Component {
  props: any;
  state: any;
  setState(changes: any): void;
}
export function h(type: any, props: any, ...children: any[]): any;
export function render(tree: any, parent: Element | null): void;
