// What the front end calls: one store per model, one view per place where it is shown.

const stores = new Map();

function storeOf(model) {
  const key = model.get("uid");
  if (!stores.has(key)) {
    const store = new Store(model.get("config"), (content) => model.send(content));
    model.on("msg:custom", (message) => store.apply(message));
    stores.set(key, store);
  }
  return stores.get(key);
}

export default {
  initialize({ model }) {
    storeOf(model);
    return () => stores.delete(model.get("uid"));
  },
  render({ model, el }) {
    const store = storeOf(model);
    const view = new View(model, el, store);
    return () => view.destroy();
  },
};
