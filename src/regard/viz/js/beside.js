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
  const found = same.map((each, number) => ({
    key: `model-${number}`,
    name: each.name,
    map: each.map,
  }));
  if (original) found.push({ key: "original", name: "before it was touched", map: original });
  maps.forEach((map, number) => found.push({ key: `input-${number}`, name: map.input, map }));
  const frames = playback?.frames ?? [];
  const every = Math.ceil(frames.length / MOST_SNAPSHOTS) || 1;
  frames.forEach((frame, number) => {
    if (number % every !== 0) return;
    const steps = playback?.steps[number].toLocaleString("en");
    found.push({ key: `snapshot-${number}`, name: `after ${steps} training steps`, map: frame });
  });
  return found.filter((each) => each.map !== map && each.map.layers.length);
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
  const other = comparedMap(data, map, state);
  const found = other && matchLayer(map.layers, other.map.layers, layer);
  if (!other || !found) return null;
  return { name: found.name === layer.name ? other.name : `${other.name}, ${found.title}`, layer: found };
}

/**
 * @param {LayerData[]} own
 * @param {LayerData[]} others
 * @param {LayerData} layer one of `own`
 */
function matchLayer(own, others, layer) {
  const named = new Map(others.map((entry) => [entry.name, entry]));
  if (own.some((each) => named.has(each.name))) return named.get(layer.name);
  const [ours, theirs] = [own, others].map((layers) => layers.filter((each) => each.kind === layer.kind));
  const place = ours.findIndex((each) => each.name === layer.name);
  return ours.length === theirs.length ? theirs[place] : undefined;
}
