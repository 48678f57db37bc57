"""The chat page in a headless Chromium, over the WebDriver protocol.

usage: page.py http://127.0.0.1:PORT        (needs Debian's chromium and chromium-driver)
"""

import base64
import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

SERVER = sys.argv[1]
PORT = 9517
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ENTER, UP = "\ue007", "\ue013"


class Browser:
    def __init__(self, width, height):
        driver = shutil.which("chromedriver") or sys.exit("skipped: no chromedriver here")
        self.process = subprocess.Popen([driver, f"--port={PORT}"], stdout=subprocess.DEVNULL)
        self.base = f"http://127.0.0.1:{PORT}"
        arguments = ["--headless=new", "--no-sandbox", f"--window-size={width},{height}"]
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}}
        self.base += "/session/" + self.call("POST", "/session", wanted, patience=30)["sessionId"]

    def call(self, method, path, body=None, patience=0):
        until = time.time() + patience
        while True:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(self.base + path, data, method=method)
            try:
                with urllib.request.urlopen(request) as answer:
                    return json.load(answer)["value"]
            except urllib.error.HTTPError as error:
                raise AssertionError(error.read().decode()) from error
            except urllib.error.URLError:
                if time.time() > until:
                    raise
                time.sleep(0.1)

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def script(self, text, *arguments):
        return self.call("POST", "/execute/sync", {"script": text, "args": list(arguments)})

    def find(self, css):
        return self.call("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def type(self, css, text):
        self.call("POST", f"/element/{self.find(css)}/value", {"text": text})

    def click(self, css):
        self.call("POST", f"/element/{self.find(css)}/click", {})

    def until(self, what, script):
        for _ in range(300):
            value = self.script("return " + script)
            if value:
                return value
            time.sleep(0.1)
        raise AssertionError(f"never: {what}; the page says {self.script('return document.body.innerText')}")

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.process.terminate()


LAST = "document.querySelector('.turn.assistant:last-of-type')"
DONE = "document.getElementById('send').textContent === 'Send' && " + LAST


def test_a_question_is_answered(page):
    page.until("the model is named", "document.getElementById('model').textContent.includes('pebble')")
    page.script("document.getElementById('temperature').value = '0'")
    page.type("#words", "What is the capital of Mongolia?" + ENTER)
    page.until("the answer", DONE)
    text = page.script(f"return {LAST}.innerText")
    assert "The capital of Mongolia is Ulaanbaatar." in text, text
    assert "tokens" in text and "Copy" in text, text


def test_the_conversation_survives_a_reload(page):
    page.open(SERVER)
    page.until("it is back", "document.body.innerText.includes('Ulaanbaatar')")


def test_the_last_message_comes_back_for_editing(page):
    page.type("#words", UP)
    value = page.script("return document.getElementById('words').value")
    assert value == "What is the capital of Mongolia?", value
    assert not page.script("return document.querySelectorAll('.turn').length")
    page.script("document.getElementById('words').value = ''")


def test_what_the_model_says_is_never_markup(page):
    page.script("""messages = [{role: 'user', content: '<img src=x onerror=boom()>'},
        {role: 'assistant', content: '<b>x</b> `<i>` **bold**\\n\\n```html\\n<script>boom()</script>\\n```\\n- one\\n- two',
         reasoning_content: '<u>hm</u>'}]; draw()""")
    assert page.script("return document.querySelectorAll('#talk b, #talk i, #talk u, #talk script, #talk img').length") == 0
    assert page.script("return document.querySelector('#talk strong').textContent") == "bold"
    assert page.script("return document.querySelector('#talk pre').textContent") == "<script>boom()</script>"
    assert page.script("return document.querySelectorAll('#talk li').length") == 2
    assert page.script("return document.querySelector('#talk details').open") is False, "thoughts are folded"


def test_a_tool_is_called_and_its_result_given(page):
    page.click("#fresh")
    page.script("""document.getElementById('tools').value = JSON.stringify([{type: 'function', function: {
        name: 'get_weather', description: 'Get the current weather in a city.', parameters: {type: 'object',
        properties: {city: {type: 'string', description: 'The city name.'}}, required: ['city']}}}])""")
    page.type("#words", "What is the weather in La Paz?" + ENTER)
    page.until("the call", "document.querySelector('.call')")
    page.until("it has ended", DONE)
    assert "get_weather" in page.script("return document.querySelector('.call').innerText")
    page.type(".call textarea", '{"temperature": 23, "weather": "sunny"}')
    page.click(".call button")
    page.until("the answer", "document.querySelectorAll('.turn.assistant').length === 2 && " + DONE)
    assert "23" in page.script("return [...document.querySelectorAll('.turn.assistant')].at(-1).innerText")
    page.script("document.getElementById('tools').value = ''")


def test_stop_stops(page):
    page.click("#fresh")
    # An answer that takes a while: the built-in model is quick and brief.
    page.script("""const ask = window.fetch; window.fetch = (url, options) => { window.fetch = ask;
        const body = {...JSON.parse(options.body), min_tokens: 400, max_tokens: 400};
        return ask(url, {...options, body: JSON.stringify(body)}); }""")
    page.type("#words", "Tell me everything." + ENTER)
    page.until("it has begun", "document.getElementById('send').textContent === 'Stop'")
    page.script("document.onkeydown(new KeyboardEvent('keydown', {key: 'Escape'}))")
    page.until("it has stopped", DONE)
    assert "stopped" in page.script(f"return {LAST}.innerText")


def test_errors_are_shown(page):
    page.click("#fresh")
    page.script("document.getElementById('temperature').value = '-1'")
    page.type("#words", "Hello" + ENTER)
    page.until("the error", "document.querySelector('.bad')")
    assert "temperature" in page.script("return document.querySelector('.bad').innerText")
    page.script("document.getElementById('temperature').value = '0'")


def test_pictures_wait_for_a_model_that_can_see(page):
    assert page.script("return document.getElementById('attach').disabled") is True


def test_it_fits_a_phone(page):
    page.call("POST", "/window/rect", {"width": 390, "height": 760})
    assert page.script("return document.documentElement.scrollWidth <= innerWidth")
    assert page.script("return document.getElementById('send').getBoundingClientRect().bottom <= innerHeight")


def test_nothing_is_fetched_from_elsewhere(page):
    names = page.script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert all(name.startswith(SERVER) for name in names), names


if __name__ == "__main__":
    browser = Browser(1000, 800)
    try:
        browser.open(SERVER)
        for name, test in list(globals().items()):
            if name.startswith("test_"):
                test(browser)
                print(f"{name}: ok")
        if len(sys.argv) > 2:
            browser.picture(sys.argv[2])
    finally:
        browser.close()
