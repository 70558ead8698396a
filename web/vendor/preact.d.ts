// What the page uses of it.
export function h(type: any, props: any, ...children: any[]): any;
export function render(tree: any, parent: Element | null): void;
