// Maps that can be compared with the displayed one: without interventions, another input, snapshot or model.

/** @import { LayerData, MapData, ViewData } from "./data.js" */
/** @import { State } from "./state.js" */

const MOST_SNAPSHOTS = 12; // snapshots offered for comparison

/** @typedef {{ key: string, name: string, map: MapData }} Other */

/**
 * All maps that can be compared with the displayed one.
 *
 * @param {ViewData} data
 * @param {MapData} map the displayed map
 * @returns {Other[]}
 */
export function comparableMaps({ maps, original, playback, beside }, map) {
  const same = (beside ?? []).filter((entry) => maps.length === 1 || entry.map.input === map.input);
  const candidates = same.map((candidate, number) => ({
    key: `model-${number}`,
    name: candidate.name,
    map: candidate.map,
  }));
  if (original) candidates.push({ key: "original", name: "without interventions", map: original });
  maps.forEach((map, number) => candidates.push({ key: `input-${number}`, name: map.input, map }));
  const frames = playback?.frames ?? [];
  const every = Math.ceil(frames.length / MOST_SNAPSHOTS) || 1;
  frames.forEach((frame, number) => {
    if (number % every !== 0) return;
    const steps = playback?.steps[number].toLocaleString("en");
    candidates.push({ key: `snapshot-${number}`, name: `after ${steps} training steps`, map: frame });
  });
  return candidates.filter((candidate) => candidate.map !== map && candidate.map.layers.length);
}

/**
 * The map chosen for comparison, or null.
 *
 * @param {ViewData} data
 * @param {MapData} map
 * @param {Pick<State, "beside">} state
 */
export function comparedMap(data, map, { beside }) {
  return (beside && comparableMaps(data, map).find((map) => map.key === beside)) || null;
}

/**
 * The layer of the compared map that matches a displayed layer: by name, or if no names match, by position within a
 * kind that has the same number of layers in both. Null if there is none. `match_layers` in subject.py does the
 * same.
 *
 * @param {ViewData} data
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {Pick<State, "beside">} state
 */
export function layerBeside(data, map, layer, state) {
  const compared = comparedMap(data, map, state);
  const match = compared && matchLayer(map.layers, compared.map.layers, layer);
  if (!compared || !match) return null;
  return { name: match.name === layer.name ? compared.name : `${compared.name}, ${match.title}`, layer: match };
}

/**
 * @param {LayerData[]} own
 * @param {LayerData[]} others
 * @param {LayerData} layer one of `own`
 */
function matchLayer(own, others, layer) {
  const named = new Map(others.map((entry) => [entry.name, entry]));
  if (own.some((candidate) => named.has(candidate.name))) return named.get(layer.name);
  const [ours, theirs] = [own, others].map((layers) =>
    layers.filter((candidate) => candidate.kind === layer.kind),
  );
  const place = ours.findIndex((candidate) => candidate.name === layer.name);
  return ours.length === theirs.length ? theirs[place] : undefined;
}
