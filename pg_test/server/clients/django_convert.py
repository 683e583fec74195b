"""A Django project whose schema is converted between two of its migrations.

The argument is `exclude` or `all`: whether the tables of Django itself stay as they are. Prints what works afterwards.
"""

import os
import sys
import tempfile
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction

project = Path(tempfile.mkdtemp())
shop = project / "shop"
(shop / "migrations").mkdir(parents=True)
(shop / "__init__.py").touch()
(shop / "migrations/__init__.py").touch()
MODELS = """
from django.contrib.auth.models import User
from django.db import models

class Tag(models.Model):
    {key}
    name = models.TextField()

class Order(models.Model):
    {key}
    owner = models.ForeignKey(User, models.CASCADE)
    tags = models.ManyToManyField(Tag)
"""
(shop / "models.py").write_text(MODELS.format(key=""))
sys.path.insert(0, str(project))

if os.environ.get("STEP") is None:
    # Each step is a process of its own, as an application that is deployed.
    import subprocess

    for step in ["before", "after"]:
        environment = {**os.environ, "STEP": step, "PROJECT": str(project)}
        subprocess.run([sys.executable, *sys.argv], env=environment, check=True)
    sys.exit()

project = Path(os.environ["PROJECT"])
sys.path[0] = str(project)
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "shop",
    ],
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    SECRET_KEY="secret",
    USE_TZ=True,
)
models = project / "shop/models.py"
if os.environ["STEP"] == "after":
    key = "id = models.BigAutoField(primary_key=True)"
    models.write_text(MODELS.format(key=key) + f"""
class Item(models.Model):
    {key}
    order = models.ForeignKey(Order, models.CASCADE)
    buyer = models.ForeignKey(User, models.CASCADE)
""")
django.setup()

from django.contrib.auth.models import User  # noqa: E402
from shop.models import Order, Tag  # noqa: E402

if os.environ["STEP"] == "before":
    call_command("makemigrations", "shop", verbosity=0)
    call_command("migrate", verbosity=0)
    order = Order.objects.create(owner=User.objects.create_user("ada", password="secret"))
    order.tags.add(Tag.objects.create(name="old"))
    exclude = r"ARRAY['auth\_%%', 'django\_%%']" if sys.argv[1] == "exclude" else "'{}'"
    with connection.cursor() as cursor:
        call = f"SELECT script FROM snowflake_convert_schema('public', exclude => {exclude})"
        cursor.execute(f"DO $$ BEGIN EXECUTE ({call}); END $$", [])
    sys.exit()


def try_it(what, run):
    try:
        with transaction.atomic():
            print(f"{what}: {run()}")
    except Exception as error:  # noqa: BLE001
        print(f"{what}: {type(error).__name__} {getattr(error.__cause__, 'sqlstate', '')}")


def log_in(name):
    from django.contrib.auth import authenticate, login
    from django.http import HttpRequest
    from django.contrib.sessions.backends.db import SessionStore

    request = HttpRequest()
    request.session = SessionStore()
    user = authenticate(username=name, password="secret")
    login(request, user)
    return User.objects.filter(pk=user.pk).count()


def order_with_tags():
    order = Order.objects.create(owner=User.objects.get(username="ada"))
    order.tags.add(*Tag.objects.all(), Tag.objects.create(name="new"))
    order.refresh_from_db()
    return Order.objects.filter(pk=order.pk, pk__gt=2**31, tags__name="new").count(), order.tags.count()


try_it("new user", lambda: User.objects.create_user("grace", password="secret").pk < 2**31)
try_it("log in", lambda: log_in("grace"))
call_command("makemigrations", "shop", verbosity=0)
try_it("migrate", lambda: call_command("migrate", verbosity=0))
try_it("order", order_with_tags)
