// ESLint's own rules, and a few that keep the view's modules plain.

import js from "@eslint/js";

export default [
  { ignores: ["src/regard/viz/built/"] },
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "no-undef": "off", // tsc knows what a browser has
      "no-var": "error",
      "object-shorthand": "error",
      "one-var": ["error", "never"],
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
];
