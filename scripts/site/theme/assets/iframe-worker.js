/* A page that was opened from a disk may start no worker, and the search of the theme runs in one. There this class takes the
 * place of Worker: the script runs in a hidden frame, and messages pass between the two. The search looks for its name. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.postMessage = data => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })))
      this.ready = new Promise((loaded, failed) => {
        const script = inside.document.createElement("script")
        script.onload = () => loaded(inside)
        script.onerror = () => failed(new Error(`${url} cannot be read`))
        script.src = url
        inside.document.body.appendChild(script)
      })
    }

    postMessage(data) {
      this.ready.then(inside => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }

    terminate() {}
  }
  window.Worker = window.IFrameWorker
}
