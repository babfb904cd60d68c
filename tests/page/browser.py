# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium, without a window, driven by Selenium."""

from __future__ import annotations

import base64
import contextlib
import shutil
import time
from collections.abc import Iterator
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tools.lab import processes
from tools.lab.workspace import Workspace

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
"""The sandbox needs another user than root; the rest keeps the browser from asking anybody else."""

DESKTOP = (1280, 900)
PHONE = (390, 844)

_IS_BUSY = """
const isDrawn = (chart) => Boolean(chart.plot) === chart.clientWidth > 0;
return document.querySelector('[aria-busy]') !== null || ![...document.querySelectorAll('.chart')].every(isDrawn);
"""
"""Charts are drawn, and given up, when the browser has laid out the page."""

_STATISTICS = """
const [data, done] = arguments;
const image = new Image();
image.onload = () => {
  const canvas = Object.assign(document.createElement('canvas'), {width: image.width, height: image.height});
  const drawing = canvas.getContext('2d');
  drawing.drawImage(image, 0, 0);
  const {data: pixels} = drawing.getImageData(0, 0, image.width, image.height);
  const colours = new Set();
  let light = 0;
  for (let at = 0; at < pixels.length; at += 4) {
    colours.add(pixels[at] << 16 | pixels[at + 1] << 8 | pixels[at + 2]);
    light += pixels[at] + pixels[at + 1] + pixels[at + 2];
  }
  done([colours.size, light / (pixels.length / 4) / 765]);
};
image.src = 'data:image/png;base64,' + data;
"""


class Browser:
    """One window of the browser.

    :ivar driver: for what is not here.
    """

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Load a page, and wait until it has shown what the agent says."""
        self.driver.get(url)

    def leave(self) -> list[str]:
        """Leave the page, and forget what it did to the window.

        :returns: what the browser complained about until then and since it was asked last. A page that is shown goes on
            to ask, and the browser to complain.
        """
        self.driver.get("about:blank")
        complaints = self.errors()
        self.emulate()
        return complaints

    def emulate(self, scheme: str = "light", size: tuple[int, int] = DESKTOP) -> None:
        """A screen of that size, whose user likes that colour scheme."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", metrics)
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.command("Emulation.setEmulatedMedia", {"features": features})

    def command(self, name: str, parameters: dict[str, Any] | None = None) -> Any:
        """A command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, parameters or {})

    def run(self, script: str, *arguments: object) -> Any:
        """What the body of a function of JavaScript returns, once charts have what they wait for."""
        self._settle()
        return self.driver.execute_script(script, *arguments)

    def _settle(self) -> None:
        deadline = time.monotonic() + 60
        while self.driver.execute_script(_IS_BUSY):
            assert time.monotonic() < deadline, "a chart is still busy, or not drawn, after 60 s"

    def value(self, module: str, expression: str) -> Any:
        """An expression over what a module of the page exports, there called ``it``."""
        script = (
            "const [path, done] = [`/page/${arguments[0]}`, arguments[1]];"
            f"import(path).then((it) => done([{expression}]), (error) => done(String(error)))"
        )
        found = self.driver.execute_async_script(script, module)
        assert isinstance(found, list), found
        return found[0]

    def all(self, selector: str) -> list[WebElement]:
        """The elements that a CSS selector finds, once charts have what they wait for."""
        self._settle()
        return list(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def one(self, selector: str) -> WebElement:
        """The only element that a CSS selector finds."""
        (found,) = self.all(selector)
        return found

    def texts(self, selector: str) -> list[str]:
        """What people see of these elements."""
        while True:
            # A look of the page's may take some of them away meanwhile.
            with contextlib.suppress(StaleElementReferenceException):
                return [element.text for element in self.all(selector)]

    def pairs(self, titles: str, values: str) -> dict[str, str]:
        """The texts of some elements, each with that of its title, of one look of the page's."""
        script = (
            "const text = (one) => one.checkVisibility() ? one.innerText.trim() : '';"
            "return arguments[0].map((one) => [...document.querySelectorAll(one)].map(text));"
        )
        names, texts = self.run(script, [titles, values])
        return dict(zip(names, texts, strict=True))

    def errors(self) -> list[str]:
        """What the browser complained about since this was asked last: scripts, loading, and the security policy."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def picture(self) -> tuple[int, float]:
        """A screenshot of the whole page: how many colours it has, and how light it is on the whole (0..1)."""
        shot = self.command("Page.captureScreenshot", {"captureBeyondViewport": True})["data"]
        base64.b64decode(shot, validate=True)
        # Looked at in another window: the page's own policy allows no such picture.
        here = self.driver.current_window_handle
        self.driver.switch_to.new_window("tab")
        try:
            colours, light = self.driver.execute_async_script(_STATISTICS, shot)
        finally:
            self.driver.close()
            self.driver.switch_to.window(here)
        return colours, light


@contextlib.contextmanager
def running(workspace: Workspace) -> Iterator[Browser]:
    """A browser with an empty profile, while the block runs.

    It ends with the workspace at the latest, and its profile goes with that: the browser's processes end one after the
    other, and the last ones write into the profile after the browser has said that it is gone.

    :raises FileNotFoundError: if it is not installed.
    """
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        raise FileNotFoundError(f"{' and '.join(missing)} (packages chromium and chromium-driver)")
    options = ChromeOptions()
    options.binary_location = str(programs["chromium"])
    for argument in (*ARGUMENTS, f"--user-data-dir={workspace.path / 'browser'}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = ChromeService(str(programs["chromedriver"]))
    driver = Chrome(options=options, service=service)
    for pid in processes.all_pids():
        if service.process.pid in (pid, processes.parent(pid)):
            workspace.record_process(pid)
    try:
        driver.set_script_timeout(120)
        driver.set_page_load_timeout(120)
        yield Browser(driver)
    finally:
        driver.quit()
