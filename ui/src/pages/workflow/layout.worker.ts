/** Lays out one graph after another, so that the page goes on meanwhile. */
import { layered, type Shape } from './layers';

addEventListener('message', ({ data }: MessageEvent<{ id: number; shape: Shape }>) => {
  let points: [number, number][] | null = null;
  try {
    points = layered(data.shape);
  } catch {
    // The page puts the stages into columns.
  }
  postMessage({ id: data.id, points });
});
