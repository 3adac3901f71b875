import { expect, test } from 'vitest';
import { CATEGORY_COUNT, categoryColour, colourOf, FREE, OUT_OF_SERVICE, pick, scaleColour, STATES, type Theme } from './palette';

type Triple = readonly [number, number, number];

/** What people see to whom one kind of cone is missing, in linear RGB: the matrices of Machado, Oliveira and Fernandes (2009) for full severity. */
const VIEWERS: Record<string, readonly Triple[]> = {
  usual: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
};
const THEMES: readonly Theme[] = ['light', 'dark'];

const linear = (hex: string): Triple =>
  [1, 3, 5].map((at) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as unknown as Triple;

const times = (matrix: readonly Triple[], v: Triple): Triple =>
  matrix.map((row) => row[0] * v[0] + row[1] * v[1] + row[2] * v[2]) as unknown as Triple;

/** CIE L*a*b* of linear RGB, for white of D65. */
function lab(rgb: Triple): Triple {
  const inside = rgb.map((each) => Math.min(1, Math.max(0, each))) as unknown as Triple;
  const [x, y, z] = times([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], inside);
  const f = (t: number): number => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116);
  const [fx, fy, fz] = [f(x / 0.9505), f(y), f(z / 1.089)];
  return [116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)];
}

function distance(a: string, b: string, viewer: readonly Triple[]): number {
  const [p, q] = [lab(times(viewer, linear(a))), lab(times(viewer, linear(b)))];
  return Math.hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]);
}

/** The two that are nearest to each other, and how far apart they are. */
function nearest(colours: readonly (readonly [name: string, colour: string])[], viewer: readonly Triple[]): [number, string] {
  let found: [number, string] = [Infinity, ''];
  colours.forEach(([a, colour], at) =>
    colours.slice(at + 1).forEach(([b, other]) => {
      const apart = distance(colour, other, viewer);
      if (apart < found[0]) found = [apart, `${a} and ${b}`];
    }),
  );
  return found;
}

const cases = Object.entries(VIEWERS).flatMap(([name, viewer]) => THEMES.map((theme) => ({ name, viewer, theme })));

const categories = (theme: Theme): (readonly [string, string])[] =>
  Array.from({ length: CATEGORY_COUNT }, (_nothing, at) => [`category ${at}`, categoryColour(at, theme)] as const);

// A distance of 2.3 can just be seen; 10 is told apart without looking twice.
test.each(cases)('states are told apart: $name, $theme', ({ viewer, theme }) => {
  const [apart, which] = nearest(STATES.map((state) => [state, colourOf(state, theme)]), viewer);
  expect(apart, which).toBeGreaterThan(10);
});

test.each(cases)('jobs, users and queues are told apart, and from what is free: $name, $theme', ({ viewer, theme }) => {
  const [apart, which] = nearest(categories(theme), viewer);
  expect(apart, which).toBeGreaterThan(15);
  for (const [name, colour] of categories(theme)) {
    expect(distance(colour, pick(FREE, theme), viewer), `${name} and free`).toBeGreaterThan(15);
    expect(distance(colour, pick(OUT_OF_SERVICE, theme), viewer), `${name} and out of service`).toBeGreaterThan(15);
  }
});

test.each(cases)('each step of the scale is seen: $name, $theme', ({ viewer, theme }) => {
  for (let at = 0; at < 5; at++) expect(distance(scaleColour(at / 5, theme), scaleColour((at + 1) / 5, theme), viewer)).toBeGreaterThan(10);
});
