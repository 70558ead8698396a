// What the page uses of it. What is in a template is not checked.
declare const htm: { bind(h: Function): (parts: TemplateStringsArray, ...values: any[]) => any };
export default htm;
