// Browsers start no workers from files: there, a hidden frame runs the script of the search.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.body.appendChild(Object.assign(document.createElement("iframe"), { hidden: true }));
      const worker = frame.contentWindow;
      this.ready = new Promise((resolve) => {
        worker.addEventListener("load", resolve);
        frame.addEventListener("load", resolve);
      });
      const load = "(...urls) => Promise.all(urls.map((url) => new Promise((done, failed) => {"
        + "document.body.append(Object.assign(document.createElement('script'), { src: url, onload: done, onerror: failed }));"
        + "})))";
      worker.document.open();
      worker.document.write(
        `<body><script>postMessage = (data) => parent.postMessage(data, "*"); importScripts = ${load};</` +
        `script><script src="${url}"></` + "script></body>",
      );
      worker.document.close();
      this.worker = worker;
      addEventListener("message", (event) => {
        if (event.source === worker) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
    }
    postMessage(data) {
      this.ready.then(() => this.worker.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
