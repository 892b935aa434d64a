"""The page at GET / in a real browser: Chromium without a window, driven by Selenium (packages chromium, chromium-driver,
python3-selenium).  One browser serves all cases, one after the other; each case has its own broker.
"""

import atexit
import contextlib
import datetime
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time

import wire
from harness import ROOT, Skip, case, eventually, now_ms

HOUR = 3_600_000
VIEWS = ["pending", "overdue", "topics", "groups", "wheel", "purgatory", "shards", "clients"]
ZONE = "Asia/Kolkata"  # Has no summer time, and half an hour that a guess would miss.

# Runs in the page before anything of its own: what the page itself might swallow.
WATCH = """
window.trouble = [];
addEventListener("securitypolicyviolation", (event) => trouble.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
addEventListener("error", (event) => trouble.push(`error: ${event.message}`));
addEventListener("unhandledrejection", (event) => trouble.push(`rejection: ${event.reason}`));
"""


class Browser:
    """Chromium with a profile of its own, started when the first case needs it."""

    lock = threading.Lock()
    driver = problem = profile = None

    @classmethod
    def get(cls):
        if cls.problem:
            raise Skip(cls.problem)
        if not cls.driver:
            try:
                cls.start()
            except Skip as reason:
                cls.problem = str(reason)
                raise
        return cls.driver

    @classmethod
    def start(cls):
        try:
            from selenium import webdriver
        except ImportError:
            raise Skip("python3-selenium is not installed") from None
        chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
        if not chromium or not chromedriver:
            raise Skip("chromium and chromium-driver are not installed")
        cls.profile = tempfile.mkdtemp(prefix="tarry-browser.")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in ["headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "no-proxy-server",
                     "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage",
                     "window-size=1280,900", f"user-data-dir={cls.profile}"]:
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.ignore_local_proxy_environment_variables()
        atexit.register(cls.stop)
        cls.driver = webdriver.Chrome(service=webdriver.ChromeService(chromedriver) if hasattr(webdriver, "ChromeService")
                                      else webdriver.chrome.service.Service(chromedriver), options=options)
        cls.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        cls.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ZONE})

    @classmethod
    def stop(cls):
        if cls.driver:
            cls.driver.quit()
            cls.driver = None
        shutil.rmtree(cls.profile, ignore_errors=True)


class Page:
    """The page of one broker, in the words of its users."""

    def __init__(self, driver, broker):
        self.driver, self.broker = driver, broker
        self.expected = []  # Parts of messages in the console that a case provokes.

    def load(self, hash=""):
        self.driver.get("about:blank")  # Else a change of the hash alone would load nothing.
        self.driver.get(f"http://127.0.0.1:{self.broker.admin[1]}/{hash}")

    def has_figures(self):
        return self.js("return document.querySelector('[data-figure=\"pending\"]')?.textContent.match(/\\d/)")

    def open(self, hash=""):
        self.load(hash)
        self.wait(self.has_figures, "the first figures")

    def go(self, view):
        self.js(f"location.hash = {json.dumps('#' + view)}")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def shown(self, selector):
        """The one that is seen; None if there is none."""
        return next((each for each in self.all(selector) if each.is_displayed()), None)

    def wait(self, condition, what, within=20):
        from selenium.common.exceptions import StaleElementReferenceException

        def tolerant():
            try:
                return condition()
            except StaleElementReferenceException:
                return None  # It was drawn again in between.

        return eventually(tolerant, what, within=within, pause=0.03)

    def one(self, selector, what=None):
        return self.wait(lambda: self.shown(selector), what or selector)

    def text(self, selector):
        # A record is drawn twice: as its list knows it, and when all of it has come.
        return self.wait(lambda: (found := self.shown(selector)) and [found.text], selector)[0]

    def click(self, selector):
        self.wait(lambda: (found := self.shown(selector)) and [found.click()], selector)

    def says(self, selector, words):
        return self.wait(lambda: (found := self.shown(selector)) and words in found.text, f"{selector} says {words!r}")

    def type(self, selector, text):
        field = self.one(selector)
        field.clear()
        field.send_keys(text)
        return field

    def keys(self, *keys):
        from selenium.webdriver import ActionChains
        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def search(self, text):
        self.js("const box = document.querySelector('input[type=search]'); box.focus(); box.select()")
        self.keys(text or keyboard().DELETE)

    def handles(self):
        return self.js("return [...document.querySelectorAll('[data-view=pending] [data-handle]')].map((row) => row.dataset.handle)")

    def finds(self, text, handles):
        self.search(text)
        self.wait(lambda: sorted(self.handles()) == sorted(handles), f"{text!r} finds {handles}")

    def open_record(self, handle):
        self.click(f'[data-handle="{handle}"]')
        self.wait(lambda: self.js("return document.querySelector('#panel [data-field=\"handle\"]')?.textContent.includes(arguments[0])", handle), "its record")

    def act(self, action):
        self.click(f'[data-action="{action}"]')
        self.one('[data-action="confirm"]')

    def confirm(self, token=None):
        if token:
            self.type("input[name=token]", token)
        self.click('[data-action="confirm"]')

    def troubles(self):
        console = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        found = console + (self.js("return window.trouble") or [])
        return [each for each in found if not any(words in each for words in self.expected)]


@contextlib.contextmanager
def page_of(broker):
    """The browser for one case; at its end nothing may have gone wrong that the case did not expect."""
    with Browser.lock:
        driver = Browser.get()
        page = Page(driver, broker)
        driver.get_log("browser")
        try:
            yield page
            troubles = page.troubles()  # Reading the console empties it.
            assert not troubles, troubles
        finally:
            driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            driver.get("about:blank")


def keyboard():
    try:
        from selenium.webdriver.common.keys import Keys
    except ImportError:
        raise Skip("python3-selenium is not installed") from None
    return Keys


def token_of(broker):
    return (broker.data / "admin.token").read_text().strip()


def handles_by_id(broker, topic):
    return {row["id"]: row["handle"] for row in broker.pending(topic)}


@case("each view of the page is drawn with nothing pending and with ten records, and the browser has nothing to complain about")
def _(ctx):
    broker = ctx.broker()
    with page_of(broker) as page:
        page.open()
        assert page.text('[data-figure="pending"]') == "0"
        page.wait(lambda: page.text("#health") == "Healthy", "that all is well")
        # Lag is of groups; deliveries are late.
        assert "late p99, last 5 min" in page.text(".figures") and "lag" not in page.text(".figures")
        for count in (0, 10):
            if count:
                with broker.client() as client:
                    topic = client.create_topic(ctx.topic())
                    for n in range(count):
                        client.schedule(topic, f"id-{n}", key=str(n))
                page.wait(lambda: page.text('[data-figure="pending"]') == "10", "the number of pending records")
            for view in VIEWS:
                page.go(view)
                section = page.one(f'[data-view="{view}"]')
                page.wait(lambda: len(section.text) > 30, f"{view} has something to say")
                seen = [each.get_attribute("data-view") for each in page.all("[data-view]") if each.is_displayed()]
                assert seen == [view], seen
        page.go("shards")
        page.says('[data-view="shards"]', "none since the start of the broker")
        broker.cli("backup", ctx.directory / "copy")
        page.wait(lambda: re.search(r"Last backup\s+\d\d:\d\d:\d\d, .* ago", page.text('[data-view="shards"]')), "the backup")
        page.go("topics")
        page.says('[data-view="topics"]', topic)
        page.go("wheel")
        page.says('[data-view="wheel"]', "10")
        page.go("pending")
        page.wait(lambda: len(page.handles()) == 10, "ten records")


@case("the page lists the connected clients with what they are and do, and their names are text")
def _(ctx):
    broker = ctx.broker()
    hostile = "<img src=x onerror=alert(1)>\u202e"
    with page_of(broker) as page, contextlib.ExitStack() as stack:
        page.open("#clients")
        page.says('[data-view="clients"]', "No client is connected")
        clients = [stack.enter_context(wire.Client(broker.address, client_id=name)) for name in ("orders-worker", hostile)]
        for client in clients:
            client.api_versions()
        page.says('[data-view="clients"]', "orders-worker")
        shown = page.text('[data-view="clients"] tbody')
        assert "<img src=x onerror=alert(1)>⟨U+202E⟩" in shown and "User:ANONYMOUS" in shown and "PLAINTEXT" in shown, shown
        rows = broker.get("/clients")
        assert rows["clients_total"] == 2 and {row["client"] for row in rows["clients"]} == {"orders-worker", hostile}
        assert all(row["address"] in shown and row["bytes_in"] > 20 and row["bytes_out"] > 20 for row in rows["clients"]), rows
        clients[0].close()
        page.wait(lambda: "orders-worker" not in page.text('[data-view="clients"]'), "that one is gone")


@case("the pictures of what is due cover exactly the coming hour, day and month, say until when, and add up to all that is pending")
def _(ctx):
    broker = ctx.broker()
    dues = [now_ms() + delay for delay in (HOUR - 120_000, HOUR + 300_000, 24 * HOUR - 120_000, 24 * HOUR + 300_000, 30 * 24 * HOUR - 120_000, 30 * 24 * HOUR + 300_000, 40 * 24 * HOUR)]
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for n, due in enumerate(dues):
            client.schedule(topic, f"id-{n}", x_deliver_at=int(due))
    with page_of(broker) as page:
        page.open()
        total = lambda span: page.text(f'[data-span="{span}"] .card-figure')
        page.wait(lambda: [total(span) for span in ("minute", "hour", "day", "month")] == ["0", "1", "3", "5"], "the totals")
        page.says('[data-figure="sum"]', "7 pending at")
        page.says('[data-figure="sum"]', "5 due in the coming month, 2 later")
        ends = broker.get("/delayed/due")
        for span, length in (("hour", HOUR), ("day", 24 * HOUR), ("month", 30 * 24 * HOUR)):
            end = next(each["until"] for each in ends["spans"] if each["span"] == span)
            assert 0 <= end - ends["now_ms"] - length < 1000, (span, end, ends["now_ms"])
            local = datetime.datetime.fromtimestamp(end / 1000, datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
            assert abs(int(page.text(f'[data-span="{span}"] .card-note').split(":")[1]) - local.minute) in (0, 1, 59), span
        # The last bar ends with its picture.
        page.js("document.querySelector('[data-span=day] .bars').focus()")
        page.keys(keyboard().END)
        page.wait(lambda: page.text('[data-span="day"] .card-note').split()[-1] in page.js("return document.activeElement.getAttribute('aria-valuetext')").split(": ")[0], "the end of the last bar")


@case("where one bar would flatten the others the picture has a logarithmic scale and says so, unless somebody chooses another")
def _(ctx):
    broker = ctx.broker()
    minute = (int(now_ms()) // 60_000 + 10) * 60_000
    with broker.client() as client, page_of(broker) as page:
        topic = client.create_topic(ctx.topic())
        for n in range(3):
            client.schedule(topic, f"id-{n}", x_deliver_at=minute + n * 10 * 60_000)
        page.open()
        total = lambda: page.text('[data-span="hour"] .card-figure')
        scale = lambda: (found := page.shown('[data-span="hour"] .chart-scale')) and found.text
        choose = lambda name: page.js("[...document.querySelectorAll('.segmented button')].find((each) => each.textContent === arguments[0]).click()", name)
        page.wait(lambda: total() == "3", "three bars of one record")
        assert scale() is None
        client.produce(topic, [wire.record("v", key="k", x_deliver_at=minute + n) for n in range(100)])
        page.wait(lambda: total() == "103" and scale() == "log scale", "the scale of a bar of 101")
        choose("linear")
        assert scale() is None
        choose("log")
        assert scale() == "log scale"
        choose("auto")
        assert scale() == "log scale"


@case("the wheel's view draws which buckets are in use, in memory and on disk")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for name, delay in (("soon", "100s"), ("tomorrow", "26h"), ("later", "30h"), ("far", "700d")):
            client.schedule(topic, name, x_delay=delay)
    broker.pending(topic)  # Writes them to disk.
    with page_of(broker) as page:
        page.open("#wheel")

        def slots(row):
            return page.js("""const row = [...document.querySelectorAll('[data-view=wheel] tbody tr')].find((each) => each.cells[0].textContent === arguments[0]);
                              const strip = row?.querySelector('.slots'); return strip && [Number(strip.dataset.slots), strip.getAttribute('aria-label')]""", row)

        page.wait(lambda: (slots("disk, hour") or [0])[0] == 3, "three hours in use on disk")
        assert slots("disk, month")[0] == 1 and slots("memory, hour")[0] == 1, (slots("disk, month"), slots("memory, hour"))
        assert " in use, from " in slots("disk, hour")[1], slots("disk, hour")
        in_wheel = sum((slots(f"wheel, level {level}") or [0])[0] for level in range(4))
        assert in_wheel == 1, in_wheel
        assert page.js("return document.querySelectorAll('[data-view=wheel] .slots-now').length") > 3


@case("the rows of the wheel's view add up to all that is pending, and cancelled records on disk have a row of their own")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for name, delay in (("soon", "100s"), ("tomorrow", "26h"), ("later", "30h"), ("far", "700d"), ("farther", "700d")):
            client.schedule(topic, name, x_delay=delay)
    handle = handles_by_id(broker, topic)  # Asking writes them to disk.
    with page_of(broker) as page:
        page.open("#wheel")

        def adds_up(pending, gone):
            rows = page.js("""return [...document.querySelectorAll('[data-view=wheel] tr[data-part]')].map((row) => [row.dataset.part, Number(row.cells[2].textContent.replace('−', '-').replace(/[(),]/g, ''))])""")
            total = [count for part, count in rows if part == "total"]
            sums = [count for part, count in rows if part == "sum"]
            parts = sum(count for part, count in rows if part in ("part", "gone"))
            lost = -sum(count for part, count in rows if part == "gone")
            tile = page.js("return document.querySelector('[data-figure=wheel-pending]').textContent")
            return total == [pending] and sum(sums) == pending and parts == pending and lost == gone and tile == str(pending)

        page.wait(lambda: adds_up(5, 0), "rows that add up")
        for name in ("far", "tomorrow"):
            assert broker.http("DELETE", f"/delayed/{topic}/{handle[name]}", token=True)[0] == 200
        page.wait(lambda: adds_up(3, 2), "rows that add up, two of them cancelled")
        page.says('[data-view="wheel"]', "cancelled or moved, space not freed yet")


@case("the page is light or dark as the system is, until its switch says otherwise, and remembers that")
def _(ctx):
    broker = ctx.broker()
    with page_of(broker) as page:
        def background(system):
            page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": system}]})
            return page.js("return getComputedStyle(document.body).backgroundColor")

        page.open()
        light, dark = background("light"), background("dark")
        assert light != dark
        # The first click is seen, whatever the system has.
        for system, same, other in (("dark", dark, light), ("light", light, dark)):
            assert background(system) == same
            page.one("#theme").click()
            assert background("dark") == background("light") == other
            page.open()
            assert background(system) == other
            page.one("#theme").click()
            assert background("dark") == background("light") == same
            background(system)
            page.one("#theme").click()
            assert background("light") == light and background("dark") == dark and page.js("return localStorage.length") == 0


@case("an address of no view shows the overview and says so, until a view is chosen")
def _(ctx):
    broker = ctx.broker()
    with page_of(broker) as page:
        page.open("#<b>nonsense/a/@b?q=c")
        page.says("#no-view", "There is no view “<b>nonsense”. This is the overview of pending records.")
        page.one('[data-view="pending"]')
        assert page.js("return location.hash") == "#pending" and not page.shown("#panel") and not page.js("return document.querySelector('input[type=search]').value")
        page.go("topics")
        page.wait(lambda: not page.shown("#no-view"), "that the line is gone")
        # The address of the skip link is one of no view, too.
        page.open("#main")
        page.one('[data-view="pending"]')
        assert not page.shown("#no-view")


@case("the help of the page closes by its button, by Escape and by a click beside it")
def _(ctx):
    with page_of(ctx.broker()) as page:
        page.open()
        is_open = lambda: page.js("return document.querySelector('#dialog').open")
        beside = lambda: page.js("const box = document.querySelector('#dialog'); box.dispatchEvent(new MouseEvent('click', { bubbles: true }))")
        for close in (lambda: page.click('#dialog [data-action="close-help"]'), lambda: page.keys(keyboard().ESCAPE), beside):
            page.one("#help").click()
            page.says("#dialog", "Keys and search terms")
            close()
            page.wait(lambda: not is_open(), "the help is closed")
            assert page.js("return document.activeElement.id") == "help"
        page.keys("?")
        page.wait(is_open, "the help")


@case("the page's search finds by id, key, topic, time and handle without Enter, and a record opens with all its details")
def _(ctx):
    broker = ctx.broker()
    due = int(now_ms()) // 1000 * 1000 + 30 * HOUR
    with broker.client() as client:
        topic, other = client.create_topic(ctx.topic("payments"), partitions=2), client.create_topic(ctx.topic("mails"))
        client.schedule(topic, "order-4711", 1, key="customer-9", x_deliver_at=due, value='{"big":12345678901234567890,"a":[1]}', mine="yes")
        client.schedule(topic, "order-4712", key="customer-8")
        client.produce(topic, [wire.record("v", key="customer-7", x_schedule_id="daily", x_every="1d")])
        client.schedule(other, "mail-1", key="customer-9")
    handle, mail = handles_by_id(broker, topic), handles_by_id(broker, other)["mail-1"]
    with page_of(broker) as page:
        page.open()
        page.finds("4711", [handle["order-4711"]])
        page.finds("order-47", [handle["order-4711"], handle["order-4712"]])
        page.finds("customer-9", [handle["order-4711"], mail])
        page.finds(handle["order-4712"], [handle["order-4712"]])
        page.finds(other, [mail])
        page.finds("id:order-* key:customer-8", [handle["order-4712"]])
        page.finds(f"topic:{topic} due:<2h", [handle["order-4712"]])
        local = datetime.datetime.fromtimestamp(due / 1000, datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
        page.finds(local.strftime("%Y-%m-%d %H:%M"), [handle["order-4711"]])
        page.finds(f"recurring:yes topic:{topic}", [handle["daily"]])
        page.finds(f"recurring:no topic:{topic}", [handle["order-4711"], handle["order-4712"]])
        page.finds("no such thing", [])
        page.finds(f"topc:{topic}", [])
        page.says('[data-unknown="topc:"]', "topc: is not a search term; it was searched as text.")
        page.finds(f"topic:{topic[:-1]}", [])
        page.says("[data-no-topic]", f"There is no topic “{topic[:-1]}”, but {topic}. topic: takes the whole name.")
        page.finds(f'topic:{topic} due:>2h', [handle["order-4711"], handle["daily"]])
        page.finds("order-4711", [handle["order-4711"]])
        page.open_record(handle["order-4711"])
        when = page.one('[data-field="due"] time')
        assert when.get_attribute("datetime") == datetime.datetime.fromtimestamp(due / 1000, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        shown = page.text('[data-field="due"]')
        assert local.strftime("%H:%M:%S") in shown and ("Kolkata" in shown or "Calcutta" in shown), shown
        assert '"big": 12345678901234567890' in page.text('[data-field="value"]')
        headers = page.text('[data-field="headers"]')
        assert "mine" in headers and "yes" in headers, headers
        assert page.text('[data-field="partition"]') == "1" and page.text('[data-field="key"]') == "customer-9"
        page.says('[data-field="history"]', "scheduled")
        # It stays open while the search finds it, and is not beside the answer to another one.
        page.finds("order-471", [handle["order-4711"], handle["order-4712"]])
        assert page.text('#panel [data-field="id"]') == "order-4711"
        page.finds("order-4712", [handle["order-4712"]])
        page.wait(lambda: not page.shown("#panel"), "that the other record is closed")
        assert page.js("return document.activeElement.type") == "search"


@case("the page cancels, moves and delivers a record after a confirmation, and shows that a wrong token is refused")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("first")])
        for name in ("one", "two", "three"):
            client.schedule(topic, name)
    handle = handles_by_id(broker, topic)
    due = {row["id"]: row["due_ms"] for row in broker.pending(topic)}
    with page_of(broker) as page:
        page.expected.append("401")
        page.open(f"#pending/{topic}/{handle['one']}")
        page.act("cancel")
        page.confirm()
        page.says('[data-field="error"]', "token")
        page.confirm("wrong-" + "0" * 40)
        page.says('[data-field="error"]', "wrong")
        assert len(broker.pending(topic)) == 3
        page.confirm(token_of(broker))
        eventually(lambda: "one" not in handles_by_id(broker, topic), "the cancellation")
        page.says("#panel", "will never be delivered")
        assert not page.shown('[data-field="error"]')

        # The token is known now, and stays in the page's memory.  A key and Enter change nothing by themselves.
        page.open_record(handle["two"])
        for key in "cd":
            page.keys(key)
            page.wait(lambda: page.js("return document.activeElement.dataset.dismiss !== undefined"), "the focus on the way back")
            page.keys(keyboard().ENTER)
            page.wait(lambda: not page.shown('[data-action="confirm"]'), "no question")
        assert "two" in handles_by_id(broker, topic)
        page.act("move")
        assert not page.shown("input[name=token]")
        page.type("input[name=due]", "sometime")
        page.confirm()
        page.says('[data-field="error"]', "sometime")
        page.type("input[name=due]", "+2h")
        page.confirm()
        eventually(lambda: {row["id"]: row["due_ms"] for row in broker.pending(topic)}["two"] == due["two"] + 2 * HOUR, "the move")
        assert page.js("return localStorage.length + sessionStorage.length + document.cookie.length") == 0

        page.open_record(handle["three"])
        page.act("deliver")
        page.confirm()
        with broker.client() as client:
            eventually(lambda: client.end_offset(topic) == 2, "the delivery")
        page.says("#panel", "offset 1")
        page.says("#panel .due-relative", "Delivered; it was due")
        # Why was this late?  How much it was is the first thing to know.
        assert re.search(r"at offset 1, [\d.]+ m?s after its due time", page.text("#panel .history")), page.text("#panel .history")
        command = page.text("#panel .command code")
        assert re.fullmatch(rf"tarry consume {re.escape(topic)} -p 0 --from 1 -n 1 -b [\d.]+:\d+", command), command
        read = subprocess.run([broker.binary, *command.split()[1:], "--timeout", "20s"], capture_output=True, text=True)
        assert read.returncode == 0 and "three" in read.stdout, read
        page.wait(lambda: page.text('[data-figure="pending"]') == "1", "one is left")
        # The pictures too: what is left was moved out of the coming hour.
        page.wait(lambda: [page.text(f'[data-span="{span}"] .card-figure') for span in ("hour", "day")] == ["0", "1"], "the pictures", within=3)
        # The address has the id, so what became of the record is told after a reload, and by a search for the id.
        page.expected.append("404")
        page.open(page.js("return location.hash"))
        page.says("#panel .outcome", "It was delivered: ")
        page.says("#panel .outcome", ", at offset 1 of partition 0.")
        page.says("#panel .due-relative", "Delivered; it was due")
        assert page.text("#panel .command code").startswith(f"tarry consume {topic} -p 0 --from 1 -n 1"), page.text("#panel .command")
        page.search("one")
        page.says(f'[data-past="{topic}"]', f"“one” of {topic} was cancelled: ")
        page.click(f'[data-past="{topic}"] a')
        page.says("#panel .outcome", "It was cancelled: ")
        assert page.text("#panel .history").count("scheduled") == 1
        page.says('#panel [data-figure="who"]', "a line with “audit” in the broker's log")
        # That line is there.
        assert re.search(rf"audit: .* on the admin: DELETE /delayed/{re.escape(topic)}/", broker.log_file.read_text())
        with broker.client() as client:
            client.schedule(topic, "one")
        page.open(f"#pending/{topic}/{handle['one']}/one")
        page.says("#panel .outcome", "another record with its id is")
        page.says("#panel .history", "an earlier record with this id")
        assert [line.split()[0] for line in page.text("#panel .history").split("\n") if re.match("scheduled|cancelled", line)] == ["scheduled", "cancelled", "scheduled"]


@case("a record that others move or cancel while it is open says so by itself, and a question about it is withdrawn")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for name in ("one", "two", "three"):
            client.schedule(topic, name)
    handle = handles_by_id(broker, topic)
    with page_of(broker) as page:
        page.expected.append("404")
        page.open()
        page.open_record(handle["one"])
        page.act("move")
        page.type("input[name=due]", "+2h")
        broker.cli("delayed", "move", topic, "one", "--by", "3d")
        page.says("#panel .outcome.warn", "It has another due time meanwhile.")
        page.says("#panel .due-relative", "Due in 3d")
        assert not page.shown('[data-action="confirm"]') and page.js("return document.activeElement.id") == "panel-title"
        page.act("cancel")
        assert not page.shown("#panel .outcome")
        broker.cli("delayed", "cancel", topic, "one")
        page.says("#panel .outcome", "It was cancelled: ")
        page.says("#panel .due-relative", "Cancelled; it was due")
        assert not page.shown('[data-action="confirm"]') and not page.shown('[data-action="cancel"]')

        # A change that comes too late is no success, and says what the record has become.
        page.open_record(handle["two"])
        page.js("""const ask = window.fetch;
                   window.fetch = async (path, options) => (/q=%40/.test(path) ? new Response(JSON.stringify({ records: [], next: "@more" })) : ask(path, options));""")
        page.act("deliver")
        broker.cli("delayed", "cancel", topic, "two")
        page.confirm(token_of(broker))
        page.says("#panel .outcome.warn", "so nothing was changed.")
        page.says("#panel .due-relative", "Cancelled; it was due")

        # An answer from before a change of the page's own does not bring the old time back, and a slow broker is asked one thing at a time.
        page.open_record(handle["three"])
        page.wait(lambda: "scheduled" in page.text('#panel [data-field="history"]').lower(), "all of the record")
        page.js(r"""const ask = window.fetch;
                    window.asked = 0;
                    window.fetch = async (path, options) => {
                      if (/q=%40/.test(path)) return new Response(JSON.stringify({ records: [{ due_ms: 0 }], next: null }));
                      const answer = await ask(path, options);
                      if (options.method || !/^\/delayed\/[^/?]+\/%40[^/?]+$/.test(path)) return answer;
                      window.asked += 1;
                      if (window.release) return answer;
                      await new Promise((go) => { window.release = go; });
                      setTimeout(() => { window.isRead = true; }, 200);
                      return answer;
                    };""")
        page.wait(lambda: page.js("return window.release !== undefined"), "that the record is asked for")
        page.act("move")
        page.type("input[name=due]", "+3d")
        page.confirm()
        page.says("#panel .outcome", "It is moved to")
        time.sleep(4)  # The page asks every three seconds.
        assert page.js("return window.asked") == 1, page.js("return window.asked")
        page.js("window.release()")
        page.wait(lambda: page.js("return window.isRead"), "that the old answer has come")
        assert "Due in 3d" in page.text("#panel .due-relative"), page.text("#panel .due-relative")


@case("a change that the broker did not answer is not called unanswered any more when it is back, and is made by a second confirmation")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, "one")
    with page_of(broker) as page:
        page.expected += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET"]
        page.open()
        page.open_record(handles_by_id(broker, topic)["one"])
        page.act("cancel")
        broker.kill()
        page.says("#connection", "The connection was lost at")
        page.confirm(token_of(broker))
        page.says('[data-field="error"]', "The broker does not answer.")
        broker.start()
        page.says('[data-field="error"]', "The broker answers again. Look whether the change was made before you confirm it once more.")
        page.confirm()
        page.says("#panel .outcome", "It is cancelled and will never be delivered.")
        assert not page.shown('[data-field="error"]') and not broker.pending(topic)


@case("the history of a recurring record begins with its last delivery, and says that the first ones are not kept")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("tick", key="k", x_delay="100ms", x_every="300ms", x_count=20, x_schedule_id="tick")])
        client.produce(topic, [wire.record("bell", key="k", x_delay="1h", x_every="1d", x_schedule_id="bell")])
        eventually(lambda: client.end_offset(topic) == 20, "the deliveries")
    with page_of(broker) as page:
        page.expected.append("404")
        page.open(f"#pending/{topic}/tick")
        page.says('#panel [data-figure="cut"]', "Earlier events are not kept")
        lines = page.js("return [...document.querySelectorAll('#panel .history li')].map((each) => each.textContent)")
        assert "at offset 19" in lines[0] and "at offset 4" in lines[15] and len(lines) == 17, lines
        assert not any("with this id" in line for line in lines), lines
        page.go(f"pending/{topic}/bell")
        page.says("#panel .history", "scheduled")
        assert not page.all('#panel [data-figure="cut"]')
        # Its row has the rule, and who moves it is told what becomes of the series.
        page.says('[data-view="pending"] [data-handle] .id', "every 1d")
        page.act("move")
        page.says(".confirmation", "Only its next delivery moves")


@case("if reading needs the token, the page asks for it once and then has a cookie, which cannot change anything")
def _(ctx):
    broker = ctx.broker(start=False)
    broker.admin = ("0.0.0.0", 0)
    broker.start()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, "a")
    handle = broker.http("GET", f"/delayed?topic={topic}")[1]["records"][0]["handle"]
    with page_of(broker) as page:
        page.expected.append("401")
        page.load()
        page.says("#dialog", "Reading needs a token here: the text of admin.read.token to look, or of admin.token")
        page.confirm("wrong-" + "0" * 40)
        page.says('[data-field="error"]', "wrong")
        assert not page.has_figures()
        # Without the form nothing could be read, so Escape does not take it away, however often.
        page.keys(*[keyboard().ESCAPE] * 3)
        page.wait(lambda: page.js("return document.querySelector('#dialog').open"), "that the form is still there")
        page.confirm(token_of(broker))
        page.wait(page.has_figures, "the first figures")
        page.open(f"#pending/{topic}/{handle}")
        assert page.js("return document.cookie") == ""
        page.act("cancel")
        page.one("input[name=token]")
        page.confirm((broker.data / "admin.read.token").read_text().strip())
        page.says('[data-field="error"]', "This token may only read, so nothing was changed.")
        page.one("input[name=token]")
        assert page.js("return fetch(`/delayed/${arguments[0]}/${arguments[1]}`, { method: 'DELETE' }).then((answer) => answer.status)", topic, handle) == 401
        page.confirm(token_of(broker))
        page.says("#panel", "never be delivered")
        eventually(lambda: broker.http("GET", f"/delayed?topic={topic}")[1]["records"] == [], "the cancellation")


@case("the page changes many records at once after a preview with their number and their whole ids")
def _(ctx):
    broker = ctx.broker()
    tail = "x" * 100
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("v", key=str(n), x_delay=f"{n + 60}m", x_schedule_id=f"many-{n}-{tail}") for n in range(125)])
        client.schedule(topic, "another")
    with page_of(broker) as page:
        page.open()
        page.search("many-")
        page.one('[data-action="many"]').click()
        assert page.one("#panel input[name=topic]").get_attribute("value") == topic
        page.type("#panel input[name=id]", "many-*")
        # Nothing is chosen before somebody chooses, and a preview needs no token.
        page.one('[data-action="preview"]').click()
        page.says('[data-field="error"]', "Choose what to do")
        page.click("#panel input[value=cancel]")
        page.one('[data-action="preview"]').click()
        page.wait(lambda: page.text('[data-figure="matched"]') == "125", "the number")
        assert page.js("return document.activeElement.contains(document.querySelector('#panel [data-figure=matched]')) && document.activeElement.matches('#panel .preview *')")
        assert page.js("return [...document.querySelectorAll('#panel .first-ones code')].map((each) => each.textContent)") == [f"many-{n}-{tail}" for n in range(100)]
        assert page.text('[data-figure="more"]').startswith("and 25 more")
        assert page.js("const code = document.querySelector('#panel .first-ones code'); return code.scrollWidth <= code.clientWidth + 1 || getComputedStyle(code).textOverflow !== 'ellipsis'")
        assert page.text("#panel .by-topic") == f"125 of {topic}"
        assert len(broker.pending(topic)) == 126
        # At most so many: exactly those that are shown.
        page.type("#panel input[name=first]", "3")
        page.one('[data-action="preview"]').click()
        page.wait(lambda: page.text('[data-figure="matched"]') == "3", "three of them")
        page.confirm(token_of(broker))
        page.says("#panel .outcome", "3 records cancelled.")
        left = {row["id"] for row in broker.pending(topic)}
        assert left == {f"many-{n}-{tail}" for n in range(3, 125)} | {"another"}, left
        page.js("document.querySelector('#panel input[name=first]').value = ''")
        page.one('[data-action="preview"]').click()
        page.wait(lambda: page.text('[data-figure="matched"]') == "122", "the others")
        page.confirm()
        page.says("#panel", "122 records cancelled")
        assert [row["id"] for row in broker.pending(topic)] == ["another"]


@case("the page changes many records of several topics at once, and its preview says how many of which")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topics = [client.create_topic(ctx.topic(name)) for name in ("a.orders", "b.orders", "mails")]
        for topic, count in zip(topics, (3, 2, 4)):
            client.produce(topic, [wire.record("v", key=f"customer-{n}", x_delay=f"{n + 60}m", x_schedule_id=f"{topic}-{n}") for n in range(count)])
    with page_of(broker) as page:
        page.open()
        page.wait(lambda: len(page.handles()) == 9, "nine records")
        page.search("customer-0")
        page.wait(lambda: len(page.handles()) == 3, "three of them")
        page.one('[data-action="many"]').click()
        value = lambda name: page.js("return document.querySelector(`#panel input[name=${arguments[0]}]`).value", name)
        assert (value("topic"), value("id"), value("key")) == ("", "", "*customer-0*")
        assert sorted(page.js("return [...document.querySelectorAll('#panel [data-topic]')].map((each) => each.dataset.topic)")) == sorted(["*", *topics])
        page.type("#panel input[name=key]", "customer-?")
        page.click("#panel input[value=cancel]")

        def preview(pattern, counts):
            page.type("#panel input[name=topic]", pattern)
            page.one('[data-action="preview"]').click()
            page.wait(lambda: page.text('[data-figure="matched"]') == str(sum(counts.values())), "the number")
            assert sorted(page.text("#panel .by-topic").split("\n")) == sorted(f"{count} of {topic}" for topic, count in counts.items())

        page.click(f'#panel [data-topic="{topics[2]}"]')
        assert value("topic") == topics[2]
        preview("*", dict(zip(topics, (3, 2, 4))))
        # Classes are those of the broker's patterns.
        preview("[!bm]*", {topics[0]: 3})
        # A dot is a dot.
        preview("?.orders*", dict(zip(topics[:2], (3, 2))))
        page.confirm(token_of(broker))
        page.says("#panel", "5 records cancelled")
        assert [len(broker.pending(topic)) for topic in topics] == [0, 0, 4]
        # What the page shows is counted again at once.
        page.search("")
        page.wait(lambda: page.text('[data-figure="pending"]') == "4" and page.text('[data-figure="sum"]').startswith("4 pending"), "the new figures", within=3)


@case("many at once takes over every condition of the search, and names what it cannot take over before anything can be chosen")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=3)
        for partition in range(3):
            for n in range(2):
                client.schedule(topic, f"x-{partition}{n}", partition, key=f"customer-{n}")
    with page_of(broker) as page:
        page.open()
        value = lambda name: page.js("return document.querySelector(`#panel input[name=${arguments[0]}]`).value", name)
        can_preview = lambda: page.js("return !document.querySelector('#panel [data-action=preview]').disabled")

        def many(text, found):
            page.js("document.querySelector('#panel [data-action=close]')?.click()")
            page.search(text)
            page.says('[data-view="pending"] .list-head', found)
            page.click('[data-action="many"]')
            page.one("#panel input[name=topic]")

        def preview(matched):
            page.click("#panel input[value=cancel]")
            page.click('[data-action="preview"]')
            page.wait(lambda: page.text('[data-figure="matched"]') == str(matched), "the number")

        many(f"topic:{topic} partition:2 id:x*", "2 records: ")
        assert (value("topic"), value("partition"), value("id")) == (topic, "2", "x*")
        preview(2)
        page.says(".confirmation", f"Cancel these 2 records of {topic}, partition 2?")
        page.confirm(token_of(broker))
        page.says("#panel .outcome", "2 records cancelled.")
        assert sorted(row["partition"] for row in broker.pending(topic)) == [0, 0, 1, 1]
        # The outcome has the focus, where a screen reader goes on.
        assert page.js("return document.activeElement.className") == "outcome"
        # Words go to the name that has no pattern yet.
        many(f"topic:{topic} id:x-* customer-1", "2 records: “customer-1”")
        assert (value("id"), value("key"), can_preview()) == ("x-*", "*customer-1*", True)
        # Both would be patterns of the id.
        many(f"topic:{topic} id:x-* -01", "1 record: “-01”")
        page.says('[data-field="lost"]', "“-01”")
        assert not can_preview()
        page.click('[data-action="without"]')
        assert not page.all('[data-field="lost"]') and can_preview()
        preview(4)
        many(f"topic:{topic} id:x-* due:sometime", "Not searched")
        page.says('[data-field="lost"]', "cannot be read")
        assert not can_preview()
        many("-0", "3 records: “-0”")
        page.type("#panel input[name=partition]", "1")
        page.type("#panel input[name=topic]", "*")
        page.click("#panel input[value=cancel]")
        page.click('[data-action="preview"]')
        page.says('[data-field="error"]', "A partition belongs to one topic")
        assert len(broker.pending(topic)) == 4


@case("a preview that takes long says how many it has found, and ends when it is stopped, when the form changes, and when it is closed")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, "a")
    with page_of(broker) as page:
        page.open()
        # An answer that has a line, and no end.
        page.js("""const ask = window.fetch;
                   window.cut = 0;
                   window.fetch = async (path, options) => {
                     if (!path.startsWith("/delayed/select")) return ask(path, options);
                     return new Response(new ReadableStream({ start(to) {
                       to.enqueue(new TextEncoder().encode('{"matched":1000,"done":0,"already_delivered":0,"unknown":0}\\n'));
                       options.signal.addEventListener("abort", () => { window.cut += 1; to.error(new DOMException("", "AbortError")); });
                     } }));
                   }""")
        page.click('[data-action="many"]')
        page.type("#panel input[name=id]", "*")
        page.click("#panel input[value=cancel]")
        cut = lambda: page.js("return window.cut")

        def look():
            page.click('[data-action="preview"]')
            page.says('[data-figure="looking"]', "1,000 found so far")
            # The focus is where the next key does no harm.
            assert page.js("return document.activeElement.dataset.action") == "stop-preview"

        look()
        page.click('[data-action="stop-preview"]')
        page.wait(lambda: cut() == 1, "that it is ended")
        page.says("#panel", "Stopped looking. Nothing was changed.")
        assert page.js("return document.activeElement.dataset.action") == "preview" and not page.shown('[data-action="stop-preview"]')
        look()
        page.type("#panel input[name=key]", "b")
        page.wait(lambda: cut() == 2, "that it is ended with its conditions")
        look()
        page.click('[data-action="close"]')
        page.wait(lambda: cut() == 3, "that it is ended with its form")
        assert not page.all('[data-field="error"]') and not page.all('[data-figure="matched"]')


@case("a new search beside the form for many is named there, and taken over by a button")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for name in ("a-1", "b-1"):
            client.schedule(topic, name)
    with page_of(broker) as page:
        page.open()
        id_of = lambda: page.js("return document.querySelector('#panel input[name=id]').value")
        page.search("id:a-*")
        page.says(".list-head .summary", "1 record: id a-*")
        page.click('[data-action="many"]')
        page.wait(lambda: id_of() == "a-*", "the search in the form")
        assert page.js("return document.querySelector('#panel [data-field=other-search]').hidden")
        page.search("id:b-*")
        page.says('#panel [data-field="other-search"]', "another search")
        assert id_of() == "a-*"
        page.click('#panel [data-action="take-over"]')
        page.wait(lambda: id_of() == "b-*", "the new search in the form")


@case("the page moves and delivers many records at once")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        first, second = (client.create_topic(ctx.topic(name)) for name in ("a.orders", "b.orders"))
        for topic, count in ((first, 3), (second, 2)):
            client.produce(topic, [wire.record("v", key=f"k-{n}", x_delay=f"{n + 60}m", x_schedule_id=f"{topic}-{n}") for n in range(count)])
    due = lambda topic: {row["id"]: row["due_ms"] for row in broker.pending(topic)}
    before = {topic: due(topic) for topic in (first, second)}
    with page_of(broker) as page:
        page.open()
        page.one('[data-action="many"]').click()

        def preview(topic, action, matched):
            page.type("#panel input[name=topic]", topic)
            page.type("#panel input[name=id]", "*")
            page.click(f"#panel input[value={action}]")
            if action == "move":
                page.type("#panel input[name=due]", "+2h")
            page.one('[data-action="preview"]').click()
            page.wait(lambda: page.text('[data-figure="matched"]') == str(matched), "the number")

        preview("*", "move", 5)
        page.says(".confirmation", "Move these 5 records of 2 topics later by 2h?")
        assert page.text('[data-action="confirm"]') == "Move 5 records later by 2h"
        # Each row has its old and its new due time.
        old, new = page.js("return [...document.querySelectorAll('#panel .first-ones li:first-child time')].map((each) => Date.parse(each.dateTime))")
        assert old == min(min(rows.values()) for rows in before.values()) and new == old + 2 * HOUR, (old, new)
        page.confirm(token_of(broker))
        page.says("#panel .outcome", "5 records moved.")
        moved = page.one('[data-action="show-moved"]').get_attribute("href")
        assert all(due(topic) == {name: at + 2 * HOUR for name, at in before[topic].items()} for topic in before), before
        preview(first, "deliver", 3)
        page.says(".confirmation", f"Deliver these 3 records of {first}?")
        page.confirm()
        page.says("#panel .outcome", "3 records delivered.")
        with broker.client() as client:
            eventually(lambda: client.end_offset(first) == 3, "the deliveries")
        page.js("location.href = arguments[0]", moved)
        page.wait(lambda: sorted(page.handles()) == sorted(handles_by_id(broker, second).values()), "those that were moved and not delivered")


@case("the page tells how many of many records were changed before a topic that refuses, and which topic it is")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        first, second = (client.create_topic(ctx.topic(name)) for name in ("a.orders", "b.orders"))
        for topic in (first, second):
            client.produce(topic, [wire.record("v", key="k", x_delay="1h", x_schedule_id=f"{topic}-{n}") for n in range(2)])
    with page_of(broker) as page:
        page.open()
        page.one('[data-action="many"]').click()
        page.wait(lambda: page.text(f'#panel [data-topic="{second}"]').endswith(" 2"), "both topics in the form")
        page.type("#panel input[name=topic]", "*")
        page.type("#panel input[name=id]", "*")
        page.click("#panel input[value=cancel]")
        page.one('[data-action="preview"]').click()
        page.wait(lambda: page.text('[data-figure="matched"]') == "4", "the number")
        # The second topic goes between the preview and the confirmation.
        assert broker.http("DELETE", f"/topics/{second}?force=true")[0] == 200
        page.expected.append("404")
        page.confirm(token_of(broker))
        page.says("#panel .outcome", "2 records cancelled.")
        page.says('[data-field="error"]', second)
        assert broker.pending(first) == []


@case("while many records are changed the panel stays, leaving the page asks first, and Stop ends it with a report of what was done")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topics = [client.create_topic(ctx.topic(name)) for name in ("a.orders", "b.orders", "c.orders")]
        for topic, count in zip(topics, (3, 2, 4)):
            client.produce(topic, [wire.record("v", key="k", x_delay="1h", x_schedule_id=f"{topic}-{n}") for n in range(count)])
    with page_of(broker) as page:
        page.open()
        page.one('[data-action="many"]').click()
        page.type("#panel input[name=topic]", "*")
        page.type("#panel input[name=id]", "*")
        page.click("#panel input[value=cancel]")
        page.one('[data-action="preview"]').click()
        page.wait(lambda: page.text('[data-figure="matched"]') == "9", "the number")
        # The second topic waits until the test lets it go on.
        page.js("""const real = window.fetch, held = new Promise((resolve) => { window.letGo = resolve; });
            window.fetch = async (path, options) => { if (path.includes(arguments[0]) && path.includes('/select')) await held; return real(path, options); }""".replace("arguments[0]", json.dumps(topics[1])))
        asks = lambda: page.js("return !window.dispatchEvent(new Event('beforeunload', { cancelable: true }))")
        assert not asks()
        page.confirm(token_of(broker))
        page.says('[data-action="confirm"]', "3 of 9 cancelled")
        page.keys(keyboard().ESCAPE)
        page.says("#panel .confirmation", "still running")
        assert asks()
        page.go("topics")
        page.wait(lambda: page.js("return !document.querySelector('[data-view=topics]').hidden"), "the other view")
        page.click('#panel [data-action="stop"]')
        page.js("window.letGo()")
        page.says("#panel .outcome", "Stopped: 5 of 9 records cancelled.")
        assert [len(broker.pending(topic)) for topic in topics] == [0, 0, 4]
        assert not asks()
        page.keys(keyboard().ESCAPE)
        page.wait(lambda: page.js("return document.querySelector('#panel').hidden"), "the panel closed")


@case("the address of a record of a topic that never was does not say that it was pending")
def _(ctx):
    with page_of(ctx.broker()) as page:
        page.expected.append("404")
        page.open("#pending/nosuch/@xx/zz")
        page.says("#panel .outcome", "the broker knows nothing of one")
        assert page.text("#panel .due-relative") == "Not pending"


@case("the numbers of the topics' names are of the coming month alone, and the total of a picture opens those of its time by keyboard")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topics = [client.create_topic(ctx.topic(f"topic-{n}")) for n in range(9)]
        for topic in topics[:8]:
            for n in range(3):
                client.schedule(topic, f"id-{n}")
        client.produce(topics[8], [wire.record("v", x_delay="50s", x_schedule_id=f"soon-{n}") for n in range(2)])
    with page_of(broker) as page:
        page.open()
        # An empty one is not shown.
        value = lambda topic: page.js("return document.querySelector(arguments[0])?.textContent ?? ''",
                                      f'[data-view="pending"] .legend [data-topic="{topic}"] .legend-value')
        page.wait(lambda: value(topics[0]) == "3" and page.text('[data-span="minute"] .card-figure') == "2", "the counts")
        # They are not all that is pending, so it stands before them of what they are.
        assert page.text(".legend-line").startswith("in the coming month:"), page.text(".legend-line")
        assert value(topics[8]) == "", value(topics[8])
        page.js("document.querySelector('[data-span=minute] .card-figure').focus()")
        page.keys(keyboard().ENTER)
        page.says('[data-span="minute"] .card-split', f"{topics[8]} 2")


@case("a topic has the same colour in every view, after a reload, and when other topics appear")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client, page_of(broker) as page:
        topics = [client.create_topic(ctx.topic(f"topic-{n}")) for n in range(7)]
        client.schedule(topics[3], "a")
        page.open()

        def colours(view):
            page.go(view)
            return page.js("""return Object.fromEntries([...document.querySelectorAll(arguments[0])].map((each) => [(each.querySelector('.legend-name') ?? each).textContent, getComputedStyle(each.querySelector('.swatch')).backgroundColor]))""",
                           "[data-view=pending] .legend li" if view == "pending" else "[data-view=topics] td.name")

        page.wait(lambda: topics[3] in colours("pending"), "its colour")
        first = colours("pending")
        for count, topic in enumerate(topics):
            for n in range(count + 2):
                client.schedule(topic, f"id-{n}")
        page.wait(lambda: len(colours("pending")) == 7, "seven topics")
        all_of_them = colours("pending")
        assert all_of_them[topics[3]] == first[topics[3]]
        places = sorted(page.js("return [...document.querySelectorAll('[data-view=pending] .legend .swatch')].map((each) => Number(each.style.background.match(/\\d+/)[0]))"))
        assert all((after - before) % 24 >= 2 for before, after in zip(places, [*places[1:], places[0]])), places  # No two neighbouring hues.
        # Each has the number of its records; those of the hour are at the picture's total.
        count = lambda topic: page.text(f'[data-view="pending"] .legend [data-topic="{topic}"] .legend-value')
        page.wait(lambda: [count(topic) for topic in topics] == ["2", "3", "4", "6", "6", "7", "8"], "the counts")
        page.wait(lambda: f"{topics[6]} 8\n{topics[5]} 7\n" in page.js("return document.querySelector('[data-span=day] .card-figure').title"), "the counts of the day")
        assert len(set(all_of_them.values())) == 7, all_of_them
        page.wait(lambda: {topic: colours("topics").get(topic) for topic in topics} == all_of_them, "the same colours in the list of topics")
        page.open()
        page.wait(lambda: colours("pending") == all_of_them, "the same colours after a reload")
        page.click(f'[data-view="pending"] .legend [data-topic="{topics[0]}"]')
        page.wait(lambda: len(page.handles()) == 2 and page.js("return document.querySelector('input[type=search]').value") == f"topic:{topics[0]}", "the records of that topic")
        page.js("localStorage.clear()")


@case("the page says how much is on disk: the data directory, pending records, and what is free")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, "far", x_delay="700d", value="x" * 300_000)
    broker.pending(topic)  # Writes it to disk.
    broker.restart(kill=False)
    with page_of(broker) as page:
        page.open()
        page.wait(lambda: page.js("return /^[\\d.]+ [KMGT]iB, [\\d.]+ [KMGT]iB free$/.test(document.querySelector('[data-figure=disk]').textContent)"), "the size and what is free")
        page.click(".disk-figure")
        status = broker.get("/status")["storage"]
        page.wait(lambda: page.text('[data-figure="free"]') == page.text('[data-figure="disk"]').split(", ")[1].removesuffix(" free"), "what is free")
        page.wait(lambda: page.text('[data-figure="stored"]') == page.text('[data-figure="disk"]').split(", ")[0], "the size")
        # It has been written to a file by now, compressed.
        assert status["pending_blob_bytes"] + status["pending_table_bytes"] > 100, status
        page.wait(lambda: page.text('[data-figure="pending-stored"]') != "0 B", "the part of pending records")
        page.says('[data-view="shards"]', str(broker.data))
        # The parts are named, and those of the broker's answer are parts of the whole.
        assert status["journal_files_bytes"] >= 64 * 1024 and status["logs_bytes"] + status["journal_files_bytes"] <= status["bytes"], status
        part = lambda name: page.js("return [...document.querySelectorAll(`[data-part=${arguments[0]}] tbody tr`)].map((row) => row.cells[0].textContent)", name)
        page.wait(lambda: {"pending records", "journals", "all else"} <= set(part("disk")), "the parts of the disk")
        assert {"for clients", "pending records: bodies", "pending records: places", "newest records of logs", "databases", "the program",
                "kept for reuse", "all else"} == set(part("memory")), part("memory")
        assert status["database_memory_bytes"] > 0 and broker.get("/status")["process"]["program_bytes"] > 0, status
        assert re.search(r"\d+ % used, no trend yet: ", page.text('[data-view="shards"] .disk')), page.text('[data-view="shards"] .disk')
        # The share and the sizes agree, also where blocks are kept for root.
        share, free, free_unit, whole, unit = re.search(r"(\d+) % used.*; ([\d.]+) (\w+) of ([\d.]+) (\w+) are free", page.text('[data-view="shards"] .disk')).groups()
        units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
        left = float(free) / float(whole) * 1024.0 ** (units.index(free_unit) - units.index(unit))
        assert abs(100 * (1 - left) - int(share)) <= 2, (share, free, whole)
        page.go("wheel")
        page.wait(lambda: page.text('[data-view="wheel"] [data-figure="disk-bytes"]') != "0 B", "the same in the wheel's view")


@case("with log.dirs on another disk the page, /status and /metrics show the free bytes of both, and the head those of the smaller")
def _(ctx):
    here, other = os.stat(ctx.directory).st_dev, "/dev/shm"
    if not os.access(other, os.W_OK) or os.stat(other).st_dev == here:
        raise Skip("there is no second file system to write to")
    with tempfile.TemporaryDirectory(prefix="tarry-logs.", dir=other) as logs:
        broker = ctx.broker(settings={"log.dirs": logs})
        both = broker.get("/status")["storage"]["file_systems"]
        assert [each["directory"] for each in both] == [str(broker.data.resolve()), logs], both
        assert all(0 < each["free_bytes"] <= each["total_bytes"] for each in both), both
        metrics = broker.get("/metrics")
        assert all(f'tarry_storage_free_bytes{{directory="{each["directory"]}"}}' in metrics for each in both), metrics
        with page_of(broker) as page:
            page.open("#shards")
            page.wait(lambda: len(page.all('[data-view="shards"] .disk .meter')) == 2, "both disks")
            shown = page.text('[data-view="shards"] .disk')
            assert str(broker.data) in shown and f"{logs}, the logs of partitions" in shown, shown
            least = min(both, key=lambda each: each["free_bytes"])["directory"]
            free = lambda: re.search(re.escape(least) + r"[^;]*; (\S+ \S+) of ", page.text('[data-view="shards"] .disk'))[1]
            page.wait(lambda: page.text('[data-figure="disk"]').endswith(f", {free()} free") and page.text('[data-figure="free"]') == free(), "the free bytes of the smaller one")
        assert broker.stop() == 0


@case("the page shows an overdue record as overdue, in the list, the head and the record, says why, and offers to deliver it now")
def _(ctx):
    broker = ctx.broker(shards=1)
    with broker.client() as client:
        topic, other = client.create_topic(ctx.topic()), client.create_topic(ctx.topic("other"))
        client.produce(topic, [wire.record("now")])
        client.produce(other, [wire.record("now")])
        client.schedule(topic, "late", x_delay="1500ms")
        client.schedule(other, "later")
    broker.cli("group", "reset", "billing", other, "--to", "start", "--create")
    assert broker.stop() == 0
    # Its partition cannot be opened, so the record stays overdue.
    log = broker.data / f"logs/{topic}-0"
    shutil.rmtree(log)
    log.touch()
    broker.start()
    eventually(lambda: broker.get("/status")["delayed"]["overdue"] == 1, "the overdue record")
    handle = broker.pending(topic)[0]["handle"]
    why = f"cannot be opened: {log}"  # And what the system says about it.
    with page_of(broker) as page:
        # After a restart a lag and a sum that nobody has asked for are not 0: the views ask.
        page.open("#groups")
        page.wait(lambda: page.text('[data-view="groups"] tbody .meter-text') == "1", "the group's lag")
        page.go("topics")
        sums = lambda name: page.js("const row = [...document.querySelectorAll('[data-view=topics] tbody tr')].find((each) => each.cells[0].textContent === arguments[0]); return row && [row.cells[2].textContent, row.cells[5].textContent]", name)
        page.wait(lambda: sums(other) == ["1", "1"] and sums(topic) == ["unknown", "0"], "the records of both topics")
        # A topic that is opened says so of what has been overdue for five seconds by then.
        page.says('#health [data-thing="overdue"]', "1 overdue, the oldest for ")
        page.go(f"topics/{topic}")
        page.says("#panel", f"Partition 0 {why}")
        page.says('[data-figure="topic-overdue"]', "Its oldest overdue record has waited for ")
        page.says('[data-figure="topic-overdue"]', f"late. Its partition {why}")
        assert "failed" in page.text("#panel tbody tr")
        page.go("pending")
        page.says('#health [data-thing="overdue"]', "1 overdue, the oldest for ")
        page.says('#health [data-thing="groups"]', "group billing has no members and is 1 record behind")
        # What is overdue has one line, and what comes next is the first of the list.
        page.says('[data-figure="late"]', "1 overdue, the oldest for ")
        page.wait(lambda: page.handles() == [broker.pending(other)[0]["handle"]], "the list of what comes next")
        assert page.text('[data-figure="next-due"]').startswith("in 5"), page.text('[data-figure="next-due"]')
        page.click('[data-figure="late"]')
        page.wait(lambda: page.text('[data-figure="overdue"]') == page.text('[data-figure="overdue-now"]') == "1", "the figures")
        page.wait(lambda: re.search(r"(\d+[ms] ?)+ overdue", page.text('[data-view="overdue"] .overdue')), "the list")
        assert "late" in page.text('[data-view="overdue"] .overdue')
        page.says('[data-view="overdue"] .troubles', f"{topic}, partition 0: 1 overdue, the oldest for ")
        page.says('[data-view="overdue"] .troubles', f"The partition {why}")
        page.says('[data-figure="why"]', "Some deliveries are refused and tried again: the broker's log says why. 1 record waits for delivery")
        page.click('[data-view="overdue"] .overdue')
        page.says("#panel", f"Its partition {why}")
        assert page.js("return location.hash") == f"#overdue/{topic}/{handle}/late"
        page.go(f"pending/{topic}/{handle}")
        page.wait(lambda: re.fullmatch(r"Overdue for (\d+m )?\d+m?s?", page.text(".due-relative")), "the record")
        page.act("deliver")
        assert page.text(".confirmation").startswith("Deliver “late” now?"), page.text(".confirmation")
        page.go(f"pending/{other}/{broker.pending(other)[0]['handle']}")
        page.wait(lambda: page.text('[data-field="id"]') == "later" and page.text(".due-relative").startswith("Due in 59m"), "a record that is not overdue")
        page.act("deliver")
        assert re.match("Deliver “later” now, instead of in 59m", page.text(".confirmation")), page.text(".confirmation")


@case("the page asks once for a topic of which several partitions keep their overdue records, and says of each why, and shows when it began")
def _(ctx):
    broker = ctx.broker(shards=1)
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=3)
        for partition in range(3):
            client.produce(topic, [wire.record("now")], partition)
            client.schedule(topic, f"late-{partition}", partition, x_delay="1500ms")
    assert broker.stop() == 0
    for partition in range(3):
        log = broker.data / f"logs/{topic}-{partition}"
        shutil.rmtree(log)
        log.touch()
    broker.start()
    eventually(lambda: broker.get("/status")["delayed"]["overdue"] == 3, "the overdue records")
    time.sleep(6)  # A point is noted each five seconds.
    with page_of(broker) as page:
        page.open("#overdue")
        lines = lambda: page.js("return [...document.querySelectorAll('[data-view=overdue] .troubles li')].map((each) => each.textContent)")
        page.wait(lambda: [f"{topic}, partition {n}: 1 overdue" in line and "The partition cannot be opened" in line for n, line in enumerate(sorted(lines()))] == [True] * 3, "why, of each")
        assert page.js("return performance.getEntriesByType('resource').filter(({ name }) => name.endsWith(`/topics/${arguments[0]}`)).length", topic) == 1
        # The page was opened after it began.
        opened = page.js("return performance.timeOrigin")
        past = page.driver.execute_async_script("""
            const done = arguments[0];
            import("/page/live.js").then(({ live }) => done(live.history), (error) => done(String(error)));""")
        assert any(point["overdue"] == 3 for point in past if point["at"] < opened), past


@case("a page that is opened after an incident shows it: the overdue records and the deliveries from before")
def _(ctx):
    broker = ctx.broker(shards=2)
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("v", key="k", x_delay="3s") for _ in range(50)])
        eventually(lambda: client.end_offset(topic) == 50, "the deliveries")
    time.sleep(2.5)
    with page_of(broker) as page:
        opened = now_ms()
        page.open("#overdue")
        past = page.driver.execute_async_script("""
            const done = arguments[0];
            import("/page/live.js").then(({ live }) => done(live.history), (error) => done(String(error)));""")
        before = [point for point in past if point["at"] < opened]
        assert any((point["delivered"] or 0) > 0 for point in before) and before[-1]["pending"] == 0, before
        page.click('[data-view="overdue"] [data-length="3600000"]')
        page.wait(lambda: page.js("return document.querySelector('[data-view=overdue] [aria-pressed=true]').textContent") == "1 hour", "the choice")
        page.go("shards")
        page.wait(lambda: page.js("return document.querySelector('[data-view=shards] [data-length][aria-pressed=true]')?.textContent") == "1 hour", "the same in the other view")


@case("the page shows a group with its lag, members and offsets, and a topic with its refusals, dead letters and slips, as text")
def _(ctx):
    broker = ctx.broker(settings={"group.initial.rebalance.delay.ms": 0})
    hostile = "<img src=x onerror=\"document.title='owned'\">"
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), tarry_delay_invalid="dead-letter")
        strict = client.create_topic(ctx.topic("strict"))
        client.produce(topic, [wire.record(f"v{n}") for n in range(5)])
        client.produce(topic, [wire.record("v", x_delay=hostile)])
        client.produce(topic, [wire.record("v", x_dely="1h")])
        assert client.produce(strict, [wire.record("v", x_delay=hostile)], check=False).error == 87
    running = subprocess.Popen([broker.binary, "consume", topic, "-g", hostile, "-b", broker.brokers, "-n", "2", "--timeout", "30s"], stdout=subprocess.PIPE)
    assert running.wait(30) == 0
    running = subprocess.Popen([broker.binary, "consume", strict, "-g", hostile, "-b", broker.brokers, "-X", f"client.id={hostile}"], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: [len(broker.get("/groups")["groups"])] == [1] and broker.get("/groups")["groups"][0]["state"] == "Stable", "the group", within=20)
        with page_of(broker) as page:
            page.open("#groups")
            page.says('[data-view="groups"] tbody', hostile)
            row = page.text('[data-view="groups"] tbody tr')
            # The sixth record went to the dead letters.
            assert "Stable" in row and re.search(r"\b4\b", row), row
            page.click('[data-view="groups"] tbody tr')
            page.says("#panel", "4 records behind")
            shown = page.text("#panel")
            assert shown.count(hostile) >= 2 and f"{strict} 0" in shown and "leader" in shown, shown
            offsets = page.js("return [...document.querySelectorAll('#panel tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent).slice(0, 5))")
            assert [topic, "0", "2", "6", "4"] in offsets, offsets
            page.go(f"topics/{topic}")
            page.says("#panel", "Dead letters")
            shown = page.text("#panel")
            assert hostile in shown and "x-dely for x-delay: 1" in shown and "tarry.delay.invalid" in shown, shown
            page.go(f"topics/{strict}")
            page.wait(lambda: page.text("#panel-title") == strict, "the panel of the other topic")
            assert page.js("return location.hash") == f"#topics/{strict}"
            page.says("#panel", "Refused batches")
            assert hostile in page.text("#panel blockquote"), page.text("#panel")
            assert re.search(r"from integration, User:ANONYMOUS, 127\.0\.0\.1:\d+$", page.text("#panel blockquote footer")), page.text("#panel blockquote")
            # The same among the clients, and a mark in the list of topics.
            page.says('[data-view="topics"] tbody', "1 refused")
            page.go("clients")
            page.says('[data-part="refusals"] tbody', hostile)
            row = page.text('[data-part="refusals"] tbody tr')
            assert f"{strict}/0" in row and "unreadable value" in row and "integration, User:ANONYMOUS, 127.0.0.1:" in row, row
            page.click('[data-part="refusals"] tbody tr')
            page.says("#panel", "Refused batches")
            page.go("shards")
            page.wait(lambda: re.search(r"\d [kM]?B/s", page.text('[data-view="shards"]')), "the bytes of a shard")
            page.wait(lambda: re.fullmatch(r"[\d.]+ [KM]?i?B of 512 MiB", page.text('[data-figure="client-memory"]')), "the memory for clients, of its limit")
            assert "owned" not in page.driver.title and not page.all("main img, #panel img")
    finally:
        running.terminate()
        running.wait(20)


@case("refused batches of several senders are shown with each sender and message, and their number beside the name of the view")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic("t"))
    sent = [("sender-one", "soonish"), ("sender-two", "soonish"), ("sender-one", "later"), ("sender-one", "soonish")]
    for name, delay in sent:
        with wire.Client(broker.address, client_id=name) as client:
            assert client.produce(topic, [wire.record("v", x_delay=delay)], check=False).error == 87
    with page_of(broker) as page:
        page.open()
        page.wait(lambda: page.text("#refused") == "4 refused", "the number in the navigation")
        assert page.js("return document.querySelector('#refused').getClientRects().length") == 1
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True})
        page.go("topics")
        page.one('[data-view="topics"] .badge')
        top = lambda part: page.js("return document.querySelector(arguments[0]).getBoundingClientRect().top", f'[data-view="topics"] td.name {part}')
        assert top(".swatch") < top(".topic-name") + 12, (top(".swatch"), top(".topic-name"))  # The colour is in the first line of the name.
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        # What these views are is said in them.
        page.go("purgatory")
        page.says('[data-view="purgatory"]', "Requests of clients that wait for something")
        page.go("shards")
        page.says('[data-view="shards"]', "Shards, memory and disk")
        page.says('[data-view="shards"]', "Records in memory")
        page.go("clients")
        page.wait(lambda: len(page.all('[data-part="refusals"] tbody tr')) == 3, "one for each sender and message")
        rows = page.js("return [...document.querySelectorAll('[data-part=refusals] tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")
        assert sorted((row[4].split(",")[0], row[2], re.search(r'"(\w+)"', row[5])[1]) for row in rows) == [
            ("sender-one", "1", "later"), ("sender-one", "2", "soonish"), ("sender-two", "1", "soonish")], rows
        page.says('[data-part="refusals"]', "since the start at ")
        page.go(f"topics/{topic}")
        page.says("#panel", "4 since the start at ")
        page.wait(lambda: len(page.all("#panel blockquote")) == 3, "the same in the topic's panel")


@case("a group that has an offset in one of three partitions is shown as such, with the records of the two others")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=3)
        for partition, count in enumerate((4, 3, 2)):
            client.produce(topic, [wire.record("v") for _ in range(count)], partition)
    broker.cli("group", "reset", "billing", topic, "--to", "start", "--partition", "0", "--create")
    with page_of(broker) as page:
        page.open("#groups")
        page.wait(lambda: "1 of 3" in page.text('[data-view="groups"] tbody tr'), "one of three partitions")
        # The list does not pass that for all of the lag.
        page.wait(lambda: page.text('[data-view="groups"] tbody .meter-text') == "≥ 4", "that there is more")
        assert page.js("return document.querySelector('[data-view=groups] tbody .meter').title") == "5 records in partitions in which the group has committed no offset are not counted"
        page.click('[data-view="groups"] tbody tr')
        page.says("#panel", "4 records behind")
        page.says('[data-figure="left-out"]', "No offset is committed in 2 other partitions of its topics: 5 records there are not counted in the lag.")
        rows = page.js("return [...document.querySelectorAll('#panel tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")
        assert rows == [[topic, "0", "0", "4", "4"], [topic, "1", "none", "3", "3 records"], [topic, "2", "none", "2", "2 records"]], rows


@case("a group with more partitions than its panel lists says how many there are besides")
def _(ctx):
    broker = ctx.broker()
    topic = ctx.topic()
    broker.cli("topic", "create", topic, "--partitions", "1005")
    broker.cli("group", "reset", "billing", topic, "--to", "end", "--create")
    with page_of(broker) as page:
        page.open("#groups/billing")
        page.says('#panel [data-more="offsets"]', "and 5 more")
        assert page.js("return document.querySelectorAll('#panel tbody tr').length") == 1000
        assert not page.shown('#panel [data-more="members"]')


@case("hostile ids, keys, headers, values and groups are text in the page, and never run")
def _(ctx):
    broker = ctx.broker()
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    hidden = "a‮gnp.exe"
    blank = " "
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, evil, key=evil, value=f"{evil}</pre>", note=evil)
        client.schedule(topic, hidden, key="'\"><b>")
        client.schedule(topic, blank, key="")
        client.produce(topic, [wire.Record(b"\x00\xff" * 20, b"\xfe\xff", [(b"x-delay", b"1h"), (b"\xff<b>", None)], None)])
    handle = {row["id"]: row["handle"] for row in broker.pending(topic)}
    with page_of(broker) as page:
        page.open()
        page.wait(lambda: len(page.handles()) == 4, "four records")
        row = page.text(f'[data-handle="{handle[blank]}"]')
        assert "␠" in row and "empty" in row, row
        page.open_record(handle[blank])
        assert page.text('[data-field="id"]') == "␠" and page.text('[data-field="key"]') == "empty"
        page.finds("onerror", [handle[evil]])
        assert evil in page.text(f'[data-handle="{handle[evil]}"]')
        page.open_record(handle[evil])
        for field in ("id", "key", "headers", "value"):
            assert evil in page.text(f'[data-field="{field}"]'), field
        page.act("cancel")
        assert evil in page.text(".confirmation")
        page.search("")
        page.open_record(handle[hidden])
        assert page.text('[data-field="id"]') == "a⟨U+202E⟩gnp.exe"
        page.open_record(handle[None])
        assert "00 ff 00 ff" in page.text('[data-field="value"]')
        for view in VIEWS:
            page.go(view)
            page.one(f'[data-view="{view}"]')
        assert "owned" not in page.driver.title and not page.all("main img, main script, #panel img, #panel script, main b, #panel b")


@case("at the width of a phone no view of the page scrolls sideways, and a record fills the screen")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic("a-topic-with-a-name-that-is-much-longer-than-a-phone-is-wide-" + "x" * 60))
        client.schedule(topic, "id-" + "w" * 200, key="key-" + "m" * 100, note="n" * 300, value="v" * 5000)
        assert client.produce(topic, [wire.record("v", x_delay="soonish")], check=False).error == 87
    handle = broker.pending(topic)[0]["handle"]
    refused = broker.get(f"/topics/{topic}")["refused_batches"]["last"]
    with page_of(broker) as page:
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 375, "height": 740, "deviceScaleFactor": 2, "mobile": True})
        page.open()

        def fits():
            width, inner = page.js("return [document.documentElement.scrollWidth, innerWidth]")
            assert width <= inner == 375, (width, inner)

        for view in VIEWS:
            page.go(view)
            page.one(f'[data-view="{view}"]')
            page.wait(lambda: len(page.text(f'[data-view="{view}"]')) > 10, view)
            fits()
            if view in ("topics", "wheel"):
                # The numbers are seen without scrolling the table.
                page.wait(lambda: page.js("""const texts = [...document.querySelectorAll(`[data-view=${arguments[0]}] .table tr > :nth-child(-n+3) .meter-text`)];
                                             return texts.length && texts.every((each) => each.getBoundingClientRect().right <= 375)""", view), f"the numbers of {view}")
        # What a producer was sent, and who it is, is read whole without scrolling.
        page.go("clients")
        page.one('[data-part="refusals"] td.message')
        for name, words in [("message", refused["message"]), ("sender", refused["address"])]:
            text, right, isWhole = page.js("""const cell = document.querySelector(`[data-part=refusals] td.${arguments[0]}`);
                                              return [cell.textContent, cell.getBoundingClientRect().right, cell.scrollWidth <= cell.clientWidth]""", name)
            assert words in text and right <= 375 and isWhole, (words, text, right, isWhole)
        page.go("pending")
        page.open_record(handle)
        fits()
        page.act("move")
        box = page.js("const box = document.querySelector('#panel').getBoundingClientRect(); return [box.left, box.top, box.width, box.height]")
        assert box == [0, 0, 375, 740], box
        page.wait(lambda: not page.js("return [...document.querySelectorAll('#panel button')].some((each) => each.getBoundingClientRect().right > 375)"), "its buttons fit")
        # What the panel covers cannot be reached by Tab, until the panel is closed.
        behind = lambda: page.js("return [...document.querySelectorAll('.top, .views, main')].map((each) => each.inert)")
        assert behind() == [True] * 3
        page.click('#panel [data-action="close"]')
        page.wait(lambda: behind() == [False] * 3, "the page behind it")
        # Nor at the width of a small phone, or of a window enlarged to 400 %.
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 320, "height": 568, "deviceScaleFactor": 2, "mobile": True})
        page.wait(lambda: page.js("return innerWidth") == 320, "the narrower page")
        for view in VIEWS:
            page.go(view)
            page.one(f'[data-view="{view}"]')
            page.wait(lambda: page.js("return document.documentElement.scrollWidth") <= 320, f"that {view} fits")
        cut = page.js("return [...document.querySelectorAll('.figure-value')].filter((each) => each.getBoundingClientRect().right > 320).map((each) => each.textContent)")
        assert not cut, cut


@case("the page shows due times whole, at any width and beside an open record")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, "far", x_delay=f"{23 * 24 + 11}h")
    handle = broker.pending(topic)[0]["handle"]
    with page_of(broker) as page:
        page.open()
        page.open_record(handle)
        for width in (1600, 1280, 1100, 800, 375):
            page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": width < 800})
            cut = page.js("const time = document.querySelector('[data-handle] time'); return time.scrollWidth > time.clientWidth + 1")
            assert not cut, width
            # The times of rows that are due soon stand in the same column, and what is said of a row that is gone is clear of its time.
            begin, soon, words, end = page.js('''const row = document.querySelector('[data-handle]');
                const [relative, time] = row.firstChild.children;
                const text = relative.textContent;
                const left = () => time.getBoundingClientRect().left;
                const begin = left();
                row.classList.add('soon');
                const soon = left();
                row.classList.remove('soon');
                relative.textContent = 'no longer pending';
                const words = document.createRange();
                words.selectNodeContents(relative);
                const found = [begin, soon, words.getBoundingClientRect().right, left()];
                relative.textContent = text;
                return found;''')
            assert begin == soon and words < end, (width, begin, soon, words, end)


@case("the page keeps its width when a view becomes longer than the window")
def _(ctx):
    with page_of(ctx.broker()) as page:
        page.open("#groups")
        assert page.js("return getComputedStyle(document.documentElement).scrollbarGutter") == "stable"
        width = lambda: page.js("return document.querySelector('main').getBoundingClientRect().width")
        before = width()
        page.js("document.querySelector('main').style.minHeight = '3000px'")
        assert width() == before, (before, width())


@case("a record that is cancelled while a long list shows it is marked there, and leads to what became of it")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for n in range(130):
            client.schedule(topic, f"id-{n}", x_delay=f"{n + 60}m")
    handle = handles_by_id(broker, topic)
    with page_of(broker) as page:
        page.expected += ["404"]  # Of the record, once it is opened.
        page.open()
        page.wait(lambda: len(page.handles()) == 100, "the first hundred")
        page.js("document.querySelector('[data-view=pending] .more').click()")
        page.wait(lambda: len(page.handles()) == 130, "all of them")
        page.js("document.querySelector(`[data-handle='${arguments[0]}']`).scrollIntoView({ block: 'center' })", handle["id-120"])
        broker.cli("delayed", "cancel", topic, "id-120")
        page.says(f'[data-handle="{handle["id-120"]}"].gone', "no longer pending")
        assert [each.get_attribute("data-handle") for each in page.all(".row.gone")] == [handle["id-120"]] and len(page.handles()) == 130
        page.click(f'[data-handle="{handle["id-120"]}"]')
        page.says("#panel", "It was cancelled: ")


@case("a search that the page cannot read shows no records of the one before")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for n in range(3):
            client.schedule(topic, f"key-{n}", x_delay=f"{n + 1}h")
    with page_of(broker) as page:
        page.open()
        page.keys("/", *"key-")
        page.wait(lambda: len(page.handles()) == 3 and "3 records" in page.text(".summary"), "what was found")
        page.keys(*" due:sometime")
        page.says('[data-view="pending"]', "Not searched")
        assert page.handles() == []
        # A partition alone would be one of every topic.
        page.search("key-")
        page.wait(lambda: len(page.handles()) == 3, "what is found")
        page.search("partition:0")
        page.says('[data-field="error"]', "A partition belongs to a topic")
        assert page.handles() == []
        page.finds(f"topic:{topic} partition:0", list(handles_by_id(broker, topic).values()))


@case("what is typed without a pause in another view is searched for whole, and a step back returns to that view")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for name in ("order-0104", "order-0105"):
            client.schedule(topic, name)
    handle = handles_by_id(broker, topic)
    with page_of(broker) as page:
        page.open()
        # Two in turn, so that no search finds what the one before it has found.
        for view, name in (("overdue", "order-0105"), ("topics", "order-0104"), ("groups", "order-0105"), ("wheel", "order-0104")):
            page.go(view)
            page.one(f'[data-view="{view}"]')
            page.js("document.activeElement.blur()")
            page.keys(f"/{name}")
            page.wait(lambda: page.handles() == [handle[name]] and name in page.text(".list-head"), f"what is found from {view}")
            assert page.js("return document.querySelector('input[type=search]').value") == name
            page.js("history.back()")
            page.one(f'[data-view="{view}"]')
            assert page.js("return document.querySelector('input[type=search]').value") == ""


@case("a bar opens the records that are due then, with their exact number, when in it they are due, and the minute with most")
def _(ctx):
    broker = ctx.broker()
    hour = int(now_ms()) // HOUR * HOUR + 2 * HOUR
    with broker.client() as client:
        topic, full = client.create_topic(ctx.topic()), client.create_topic(ctx.topic("full"))
        client.produce(topic, [wire.record("v", key="k", x_deliver_at=hour + 20 * 60_000 + n, x_schedule_id=f"many-{n}") for n in range(120)])
        client.schedule(topic, "alone", x_deliver_at=hour + 50 * 60_000)
        client.produce(full, [wire.record("v", key="k", x_deliver_at=hour + 9 * HOUR + n) for n in range(100)])
    local = lambda ms: datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone(datetime.timedelta(hours=5, minutes=30))).strftime("%H:%M")
    with page_of(broker) as page:
        page.open()
        page.wait(lambda: page.text('[data-span="day"] .card-figure') == "221", "the records of the day")
        page.js("document.querySelector('[data-span=day] .bars').focus()")
        page.keys(keyboard().HOME, keyboard().ARROW_RIGHT, keyboard().ARROW_RIGHT, keyboard().ENTER)
        page.says(".list-head .summary", "121 records: ")
        page.says(".list-head .summary", "; the first 100")
        page.wait(lambda: f"{local(hour + 20 * 60_000)}, 120" in page.text('[data-figure="peak"]'), "the minute with most")
        page.says('[data-figure="topics"]', f"{topic} 121")
        chart = "document.querySelector('[data-span=zoom] .bars')"
        assert page.js(f"return {chart}.getAttribute('aria-valuemax')") == "59"
        page.js(f"{chart}.focus()")
        page.keys(keyboard().HOME, *[keyboard().ARROW_RIGHT] * 50)
        assert page.js(f"return {chart}.getAttribute('aria-valuetext')").startswith(f"{local(hour + 50 * 60_000)} – "), page.js(f"return {chart}.getAttribute('aria-valuetext')")
        page.keys(keyboard().ENTER)
        page.wait(lambda: page.handles() == [handles_by_id(broker, topic)["alone"]], "the record of that minute")
        # The head of what was found is in sight, and a panel beside it moves nothing.
        top = lambda: page.js("return [...document.querySelectorAll('.list-head')].find((each) => each.offsetParent).getBoundingClientRect().top")
        before = top()
        assert 54 <= before <= 800, before
        page.open_record(page.handles()[0])
        page.wait(lambda: top() == before, f"the head of the list where it was, at {before}")
        # A full page is not "or more".
        page.search(f"topic:{full} key:k")
        page.says(".list-head .summary", "100 records: ")
        # Which topic has most in a time is answered where it is typed.
        page.search("due:<20h")
        page.wait(lambda: page.text('[data-figure="topics"]') == f"{topic} 121, {full} 100", "the numbers of the topics")
        # A topic that is deleted meanwhile takes away no other number.
        page.js("""const ask = window.fetch;
                   window.fetch = async (path, options) => (path.startsWith(arguments[0]) ? new Response('{"error": "gone"}', { status: 404 }) : ask(path, options));""",
                f"/delayed/count?topic={full}&")
        page.search("due:<21h")
        page.wait(lambda: page.text('[data-figure="topics"]') == f"{topic} 121", "the number of the topic that is left")
        page.says(".list-head .summary", "221 records: ")


@case("the page is used by the keyboard alone: search, list, record, cancellation, views")
def _(ctx):
    keys = keyboard()
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for n in range(3):
            client.schedule(topic, f"key-{n}", x_delay=f"{n + 1}h")
    handle = handles_by_id(broker, topic)
    with page_of(broker) as page:
        page.open()
        page.wait(lambda: len(page.handles()) == 3, "three records")
        focus = lambda: page.js("const e = document.activeElement; return e.dataset.handle ?? e.dataset.action ?? e.name ?? e.id")
        page.keys("/", *"key-")
        assert focus() == "q"
        page.wait(lambda: "key-" in page.text(".summary") and "3 records" in page.text(".summary"), "what was found")
        page.keys(keys.ARROW_DOWN)
        assert focus() == handle["key-0"]
        page.keys(keys.ARROW_DOWN, keys.ARROW_DOWN, keys.ARROW_UP)
        assert focus() == handle["key-1"]
        page.keys(keys.ENTER)
        page.says('[data-field="id"]', "key-1")
        assert focus() == "panel-title"
        page.keys(keys.ESCAPE)
        page.wait(lambda: not page.shown("#panel") and focus() == handle["key-1"], "back to the row")
        page.keys(keys.ENTER)
        page.one('[data-action="cancel"]')
        page.keys("c")
        page.wait(lambda: focus() == "token", "the question for the token")
        page.keys(*token_of(broker), keys.ENTER)
        eventually(lambda: "key-1" not in handles_by_id(broker, topic), "the cancellation")
        page.says("#panel", "never be delivered")
        page.keys(keys.ESCAPE, keys.ESCAPE)
        page.wait(lambda: page.js("return document.querySelector('input[type=search]').value") == "", "an empty search")
        # Along the bars of the coming day: the second one is the next hour, when the first record is due.
        page.wait(lambda: page.js("return document.querySelector('[data-span=day] .bars').getAttribute('aria-valuemax')") in ("23", "24"), "the bars of the day")
        page.js("document.querySelector('[data-span=day] .bars').focus()")
        page.keys(keys.HOME, keys.ARROW_RIGHT)
        assert "1 due" in page.js("return document.activeElement.getAttribute('aria-valuetext')")
        tip = page.text('[data-span="day"] .tip')
        assert topic in tip and "object" not in tip, tip
        page.keys(keys.ENTER)
        page.wait(lambda: page.handles() == [handle["key-0"]], "the records of that hour")
        page.keys(keys.ESCAPE)
        # From nowhere the arrow leads into the list.
        page.js("document.activeElement.blur()")
        page.keys(keys.ARROW_DOWN)
        assert focus() == handle["key-0"]
        for number, view in enumerate(VIEWS, 1):
            page.keys(str(number))
            page.one(f'[data-view="{view}"]')
        # The focus was in a view that is gone: it is in the new one, whose name is said.
        page.wait(lambda: focus() == "main", "the focus in the view")
        assert page.js("return document.querySelector('#main').getAttribute('aria-labelledby')") == f"title-{VIEWS[-1]}"


def luminance(colour):
    parts = [value / 255 for value in colour]
    parts = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@case("in both themes text has a contrast of 4.5 on every surface of the page, and the edge of a field one of 3")
def _(ctx):
    del ctx  # The colours are in the style sheet.
    blocks = re.findall(r"\{([^{}]*--bg:[^{}]*)\}", (ROOT / "admin/page/page.css").read_text())
    assert len(blocks) == 3, len(blocks)
    for block in blocks:
        colours = {name: bytes.fromhex(value) for name, value in re.findall(r"--([a-z-]+): #([0-9a-f]{6});", block)}
        mixed = lambda name, part, under: [part * a + (1 - part) * b for a, b in zip(colours[name], colours[under])]
        for name in ("text", "muted", "accent", "danger", "warn", "good"):
            for under in ("bg", "surface"):
                assert contrast(colours[name], colours[under]) >= 4.5, (name, under)
                # The lines about trouble and outcomes are on a tint of their own colour.
                if name in ("danger", "warn", "good"):
                    assert contrast(colours[name], mixed(name, 0.14 if name == "warn" else 0.11, under)) >= 4.5, (name, under)
        for under in ("bg", "surface"):
            assert contrast(colours["edge"], colours[under]) >= 3, under
        assert contrast(colours["accent-text"], colours["accent"]) >= 4.5 and contrast(colours["bg"], colours["danger"]) >= 4.5


# Expressions in the page's own modules, and what they are; the zone is 5 h 30 min ahead of UTC.
READ = [
    ("slots.placesOf({ bits: '8001' })", [0, 15]), ("slots.placesOf({ bits: '' })", []),
    ("format.parseDuration('1h30m')", 5_400_000), ("format.parseDuration('-10m')", -600_000), ("format.parseDuration('PT1H')", HOUR),
    ("format.parseDuration('in 2d')", 48 * HOUR), ("format.parseDuration('250ms')", 250), ("format.parseDuration('10')", None), ("format.parseDuration('1h of')", None),
    ("format.parseTime('2026-12-24', 0)", {"from": 1798050600000, "to": 1798137000000}),
    ("format.parseTime('2026-12', 0)", {"from": 1796063400000, "to": 1798741800000}),
    ("format.parseTime('2026-12-24 18:30', 0)", {"from": 1798117200000, "to": 1798117260000}),
    ("format.parseTime('2026-12-24T18:30:05Z', 0)", {"from": 1798137005000, "to": 1798137006000}),
    ("format.parseTime('2026-12-24T18:30:05.250+01:00', 0)", {"from": 1798133405250, "to": 1798133405251}),
    ("format.parseTime('2026-13-24', 0)", None), ("format.parseTime('4711', 0)", None), ("format.parseTime('25:00', 0)", None),
    # A minute of the day that has passed is tomorrow's: 0 is 5:30 in the morning.
    ("format.parseTime('05:29', 0).from", 24 * HOUR - 60_000), ("format.parseTime('5:31', 0).from", 60_000),
    ("search.spanText(1798050600000, 1798137000000)", "due:2026-12-24"), ("search.spanText(1798117200000, 1798117260000)", "due:2026-12-24T18:30"),
    # An hour of UTC is none of the zone's.
    ("search.spanText(1798113600000, 1798117200000)", "due:2026-12-24T12:00Z..2026-12-24T13:00Z"),
    ("search.parseSpan('2026-12-24T12:00Z..2026-12-24T13:00Z', 0)", {"from": 1798113600000, "to": 1798117200000}),
    ("format.parseTime('tomorrow  9:00', 0)", {"from": 24 * HOUR + 3 * HOUR + HOUR // 2, "to": 24 * HOUR + 3 * HOUR + HOUR // 2 + 60_000}),
    ("format.parseTime('tomorrow 25:00', 0)", None), ("format.parseTime('2026-12-24 9:30', 0).from", 1798084800000),
    ("search.parseSpan('>100d', 5)", {"from": 100 * 24 * HOUR + 5, "to": None}), ("search.parseSpan('>2026-12-24', 0)", {"from": 1798137000000, "to": None}),
    ("search.parseSpan('<2026-12-24', 0)", {"from": None, "to": 1798050600000}), ("search.parseSpan('>soon', 0)", None),
    ("['due:tomorrow 9:00', 'due:in 1h', 'due:\"tomorrow 9:00\"..\"tomorrow 10:00\"', 'due:2026-12-24 09:00'].map((text) => search.parseSearch(`${text} x`, 0)).map(({ span, words }) => [span.from, words])",
     [[(24 + 3) * HOUR + HOUR // 2, "x"], [HOUR - HOUR // 20, "x"], [(24 + 3) * HOUR + HOUR // 2, "x"], [1798083000000, "x"]]),
    ("search.parseSearch('due:today 47', 0).words", "47"), ("search.parseSearch('due:', 0).words", ""),
    ("search.parseSearch('due:sometime', 0).wrong.includes('due:2026-12-24T09:00..2026-12-24T10:00')", True),
    ("search.parseSearch('topc:orders -recurring:yes key:a 18:30 \"value:x\"', 0).unknown", ["topc:", "-recurring:"]),
    ("search.parseSpan('<1h', 5)", {"from": 5, "to": HOUR + 5}),
    ("(({ topic, key, words }) => [topic, key, words])(search.parseSearch('topic:orders key:\"a b\" 47 11', 0))", ["orders", "a b", "47 11"]),
    ("search.parseSearch('topic:orders partition:2', 0).wrong", None),
    ("search.parseSearch('partition:2', 0).wrong", "A partition belongs to a topic, so partition: needs one. Example: topic:orders partition:2."),
    ("search.parseSearch('topic:orders partition:two', 0).wrong", "“two” is not the number of a partition. Example: topic:orders partition:2."),
    # A selection has patterns: what no pattern can say is told.
    ("['yes', 'no', 'may'].map((text) => search.parseSearch(`recurring:${text}`, 0)).map(({ recurring, wrong }) => [recurring, wrong !== null])", [[True, False], [False, False], [None, True]]),
    ("many.selectionOf(search.parseSearch('47', 0), []).id", "*47*"),
    ("(({ topic, partition, id, lost }) => [topic, partition, id, lost === undefined])(many.selectionOf(search.parseSearch('@7Vb', 0), [{ handle: '@7Vb', id: 'a', key: null, topic: 't', partition: 2 }]))", ["t", "2", "a", True]),
    ("many.selectionOf(search.parseSearch('@7Vb', 0), [{ handle: '@7Vb', id: null, key: 'k', topic: 't', partition: 2 }]).lost !== undefined", True),
    ("[1798117200000, 1798117205000, 1798117205250].map(format.typedTime)", ["2026-12-24 18:30", "2026-12-24 18:30:05", "2026-12-24 18:30:05.250"]),
    ("many.selectionOf(search.parseSearch('47', 0), [{ id: 'a', key: '47', topic: 't' }]).key", "*47*"),
    ("many.selectionOf(search.parseSearch('2026-12-24', 0), [{ id: 'a', key: null, topic: 't' }]).span.from", 1798050600000),
    ("['@7Vb', 'a*b', 'id:a key:b 47', 'id:a recurring:yes'].map((text) => Boolean(many.selectionOf(search.parseSearch(text, 0), []).lost))", [True] * 4),
    ("format.duration(3_723_000)", "1h 2m"), ("format.milliseconds(1940)", "1.9 s"), ("format.milliseconds(1000)", "1 s"), ("format.milliseconds(12_400)", "12s"), ("format.milliseconds(999.4)", "999 ms"), ("format.until(-90_000)", "1m 30s overdue"), ("format.bytes(1536)", "1.5 KiB"),
    ("value.indentJson('{\"a\":[1,{}],\"a\":1e400,\"b\":\"x:,{\"}')", '{\n  "a": [\n    1,\n    {}\n  ],\n  "a": 1e400,\n  "b": "x:,{"\n}'),
    ("value.representations(new TextEncoder().encode('  {\"a\":{}} \\n   ')).map(({ text }) => text).slice(0, 2)", ['{\n  "a": {}\n}', '  {"a":{}}␠\n␠␠␠']),
    ("value.indentJson('{')", None), ("dom.visible('a\\u0000\\u202eb')", "a␀⟨U+202E⟩b"), ("[' ', '  a b ', ''].map(dom.visible)", ["␠", "␠␠a b␠", ""]),
]


# The fourth is in the morning.
READ += [("search.busiest([[0, 9], [60_000, 8], [120_000, 7], [9e6, 5]].map(([from, count]) => ({ from, count })), 0).map(({ count }) => count)", [9, 8, 5]),
         ("search.busiest([{ from: 9e6, count: 2 }], 0).length", 1), ("search.busiest([], 0)", [])]
READ += [("['a*', 'a?', '[ab]', '[]]', 'a.b-c', 'a[b', '[]'].map(glob.isPattern)", [True] * 4 + [False] * 3),
         # Words are no pattern, so these would become another one than was meant.
         ("many.selectionOf(search.parseSearch('job[3]', 0), []).lost !== undefined", True), ("many.selectionOf(search.parseSearch('job[3', 0), []).id", "*job[3*")]

# What the line of health says: out of service, free bytes, memory, the time of a refusal, members, points, the oldest overdue.
HEALTH = """health.thingsToSee({ status: { state: 'running', delayed: { overdue: 3 }, out_of_service: %s, storage: { reserve_bytes: 100, file_systems: [{ free_bytes: %d }] },
 client_memory_bytes: %d, client_memory_limit_bytes: 1000 }, topics: { topics: [{ name: 'a', refused_batches: { last: { at_ms: %d } } }] },
 groups: { groups: [{ group: 'g/h', members: %d, lag: 1 }] }, history: %s, now: 1e9, oldest: %s }).map(({ text, hash }) => [text, hash])"""
FILLING = "[{ at: 0, free: 2100 }, { at: %d, free: 1100 }]"
READ += [(HEALTH % ("[]", 1000, 10, 0, 1, "[]", "null"), []), (HEALTH % ("[]", 1000, 10, 0, 1, FILLING % (HOUR // 2), "4000"), []),
         (HEALTH % ("[{ topic: 'a/b', partition: 2 }]", 150, 900, 10**9 - 1, 0, "[]", "60000"), [
             ["3 overdue, the oldest for 1m", "#overdue"], ["partition 2 of a/b is out of service", "#topics/a%2Fb"], ["the disk has only 150 B free", "#shards"],
             ["clients use 900 B of 1000 B memory", "#shards"], ["group g/h has no members and is 1 record behind", "#groups/g%2Fh"], ["batches for a were refused", "#clients"]]),
         (HEALTH % ("[]", 1000, 10, 0, 1, FILLING % HOUR, "null"), [["the disk is full in about 1h", "#shards"]]),
         ("health.diskTrend([{ at: 0, free: 1100 }, { at: 3600000, free: 2100 }], 100).left", None)]

# The parts of the memory and of the disk add up; a topic with partitions that are not open has at least so much.
READ += [("resources.memoryParts({ process: { rss_bytes: 200, program_bytes: 24, heap_kept_bytes: 3, blocks_kept_bytes: 4 }, client_memory_bytes: 10, delayed: { near_bytes: 30, memory_bytes: 20 }, storage: { database_memory_bytes: 5 }, shards: [{ log_tail_bytes: 1 }, { log_tail_bytes: 6 }] }).map(({ bytes }) => bytes)",
          [10, 20, 10, 7, 5, 24, 7, 117]),
         ("resources.memoryParts({ process: { rss_bytes: 5 }, client_memory_bytes: 10, delayed: {} }).at(-1).bytes", 0),
         ("resources.diskParts({ storage: { bytes: 1000, logs_bytes: 500, pending_blob_bytes: 90, pending_table_bytes: 10, journal_files_bytes: 300 } }, [{ name: 'a', bytes: 100, partitions: 1, partitions_open: 1 }, { name: 'b', bytes: 300, partitions: 2, partitions_open: 1 }, { name: 'c', bytes: 0, partitions: 1, partitions_open: 0 }]).map(({ name, bytes, isAtLeast = false }) => [name, bytes, isAtLeast])",
          [["logs of b", 300, True], ["logs of a", 100, False], ["all other logs", 100, False], ["pending records", 100, False], ["journals", 300, False], ["all else", 100, False]])]

# Why records stay overdue: the state, those set aside, free bytes, deliveries per second, when one was refused.
BEHIND = """health.whyBehind({ status: { state: '%s', delayed: { overdue: 5, out_of_service: %d }, storage: { reserve_bytes: 100, file_systems: [{ directory: '/d', free_bytes: %d }] } },
 delivered: %s, refusedAt: %s, now: 100_000 })"""
READ += [(BEHIND % ("without its data directory", 0, 1000, "9", "null"), "The broker delivers nothing: its data directory was removed or replaced. Its log says what to do."),
         (BEHIND % ("running", 3, 1000, "0.5", "null"), "The broker is behind: 2 records wait for delivery, which takes about 4s at 0.5/s."),
         (BEHIND % ("running", 5, 1000, "0", "null"), ""), (BEHIND % ("disk full", 0, 50, "null", "null"), "The broker is behind: 5 records wait for delivery."),
         (BEHIND % ("disk full", 4, 50, "0", "95_000"), "Some deliveries are refused and tried again: the disk of /d has only 50 B free. 1 record waits for delivery, and none was delivered in the last second."),
         (BEHIND % ("running", 5, 1000, "0", "99_000"), "Some deliveries are refused and tried again: the broker's log says why."),
         ("health.setAside({ out_of_service: [{ topic: 'a', partition: 2, reason: 'torn', set_aside: 7 }, { topic: 'b', partition: 0, reason: '', set_aside: 0 }] }).map(({ text }) => text)",
          ["a, partition 2: 7 overdue. The partition is out of service until a restart: torn."])]


@case("times, durations, searches and patterns are read in the page as people write them")
def _(ctx):
    broker = ctx.broker()
    with page_of(broker) as page:
        page.open()
        found = page.driver.execute_async_script("""
            const [expressions, done] = arguments;
            Promise.all(["format", "search", "value", "dom", "slots", "many", "glob", "health", "resources"].map((name) => import(`/page/${name}.js`))).then(([format, search, value, dom, slots, many, glob, health, resources]) => {
              const read = { %s };
              done(expressions.map((each) => read[each]()));
            }, (error) => done(String(error)));""" % ",".join(f"{json.dumps(text)}: () => {text}" for text, _ in READ), [text for text, _ in READ])
        wrong = [(text, got, wanted) for (text, wanted), got in zip(READ, found) if got != wanted]
        assert not wrong, wrong


@case("the page says that the connection is lost and since when, that a search got no answer, and continues by itself when the broker is back")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, "a")
    with page_of(broker) as page:
        page.expected += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET"]
        page.open()
        assert not page.shown("#restarted")
        broker.kill()
        page.says("#connection", "The connection was lost at")
        # No answer is not the answer that there is no such record.
        page.search("id:b")
        page.says('[data-view="pending"]', "Not searched")
        page.says('[data-field="error"]', "The broker does not answer.")
        assert "No pending record matches" not in page.text('[data-view="pending"]') and "0 records" not in page.text(".list-head")
        broker.start()
        with broker.client() as client:
            client.schedule(topic, "b")
        page.wait(lambda: page.handles() == [handles_by_id(broker, topic)["b"]], "the search, made again", within=15)
        assert not page.shown('[data-field="error"]')
        page.wait(lambda: page.text('[data-figure="pending"]') == "2" and not page.js("return document.querySelector('#connection').textContent"), "the new figures", within=15)
        # Whoever comes back to the page learns that it is another run, until the line is dismissed.
        page.says("#restarted", "The broker was restarted at ")
        assert "Totals count from then on." in page.text("#restarted") and "load the page again" not in page.text("#restarted")
        page.click('[data-action="dismiss-restart"]')
        page.wait(lambda: not page.shown("#restarted"), "that it is dismissed")
        page.go("topics")
        page.says('[data-view="topics"]', topic)
        assert not page.shown("#restarted")


@case("a stream of figures that is never answered is noticed: the page says that it waits, since when and why that may be, and goes on once it is answered")
def _(ctx):
    broker = ctx.broker()
    with page_of(broker) as page:
        # A request that is held here is neither answered nor refused.
        page.driver.execute_cdp_cmd("Fetch.enable", {"patterns": [{"urlPattern": "*/events*"}]})
        try:
            page.load()
            page.says("#connection", "Waiting for the broker's first figures since ")
            assert page.text('[data-figure="next-due"]') == "–"
            page.says("#connection", "No figures have come since ")
            page.says("#connection", "The broker has not answered for 15 seconds.")
            page.says("#connection", "Trying again.")
        finally:
            page.driver.execute_cdp_cmd("Fetch.disable", {})
        page.wait(page.has_figures, "the first figures", within=40)
        page.wait(lambda: not page.js("return document.querySelector('#connection').textContent"), "that nothing is wrong")


@case("a listed record is marked as no longer pending only if the broker has looked everywhere")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for n in range(102):  # More than are read again as a whole.
            client.schedule(topic, f"id-{n:03}")
    with page_of(broker) as page:
        page.open()
        page.wait(lambda: len(page.handles()) == 100, "the first hundred")
        # An answer that says no more than that it has not found it yet.
        page.js("""const ask = window.fetch;
                   window.checks = 0;
                   window.fetch = async (path, options) => {
                     if (!/q=%40/.test(path)) return ask(path, options);
                     window.checks += 1;
                     return new Response(JSON.stringify({ records: [], next: window.isWhole ? null : "@more" }));
                   }""")
        page.click("button.more")
        page.wait(lambda: len(page.handles()) == 102, "all of them")
        page.wait(lambda: page.js("return window.checks") > 8, "that they are looked for", within=30)
        assert not page.all(".row.gone")
        page.js("window.isWhole = true")
        page.one(".row.gone")
