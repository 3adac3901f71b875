/** What Svelte compiles with. Styles go to files, never into elements: the CSP allows no inline style. */
export default {
  compilerOptions: { runes: true, css: 'external' },
};
